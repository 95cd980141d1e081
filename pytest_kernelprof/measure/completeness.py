"""Refuses profiles that are known not to hold everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.errors import IncompleteProfile

if TYPE_CHECKING:
    from pytest_kernelprof.schema.profile import Profile


def require_complete(profile: Profile) -> None:
    """Raise unless the profile is complete.

    Raises:
        IncompleteProfile: with what is missing and how often it was tried.
    """
    why = incomplete_words(profile)
    if why:
        raise IncompleteProfile(why)


def require_clock(profile: Profile) -> None:
    """Raise where the host's times of this process are not to be believed.

    Raises:
        IncompleteProfile: with what is known of the clock.
    """
    if profile.integrity.clock:
        raise IncompleteProfile(f"times {profile.integrity.clock}")


def incomplete_words(profile: Profile) -> str:
    """What is missing and how often it was tried; empty where nothing is."""
    integrity = profile.integrity
    if integrity.complete:
        return ""
    tries = integrity.retakes + 1
    tried = "once" if tries == 1 else f"{tries} times"
    return (
        f"profile incomplete (tried {tried}): {'; '.join(integrity.problems)}. Its counts could "
        "be too low, so no limit is judged"
    )
