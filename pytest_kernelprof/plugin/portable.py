"""Records that mean the same on another machine: files are told as seen from the root folder."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from pytest_kernelprof.schema import run

if TYPE_CHECKING:
    from collections.abc import Iterable

Located = TypeVar("Located", run.Kernel, run.Copy, run.Wait)
Placed = TypeVar("Placed", run.Profile, run.Verdict)


def portable(test: run.Test, root: str) -> run.Test:
    """The test with files below ``root`` relative to it, with forward slashes; others stay."""
    return replace(
        test,
        profiles=tuple(_profile(root, profile) for profile in test.profiles),
        comparisons=tuple(
            replace(one, verdicts=_placed(root, one.verdicts)) for one in test.comparisons
        ),
    )


def _profile(root: str, profile: run.Profile) -> run.Profile:
    located = partial(_located, root)
    return replace(
        *_placed(root, [profile]),
        verdicts=_placed(root, profile.verdicts),
        kernels=located(profile.kernels),
        variants=tuple(map(located, profile.variants)),
        copies=_located(root, profile.copies),
        waits=_located(root, profile.waits),
        trace=_from(root, profile.trace),
    )


def _located(root: str, ones: Iterable[Located]) -> tuple[Located, ...]:
    return tuple(replace(one, source=_from(root, one.source)) for one in ones)


def _placed(root: str, ones: Iterable[Placed]) -> tuple[Placed, ...]:
    return tuple(
        replace(one, place=replace(one.place, file=_from(root, one.place.file)))
        if one.place
        else one
        for one in ones
    )


def _from(root: str, path: str) -> str:
    below = root.rstrip(os.sep) + os.sep
    return path[len(below) :].replace(os.sep, "/") if path.startswith(below) else path
