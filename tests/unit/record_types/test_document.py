"""The file form of a run: nothing is lost in it, names stand in it once, and it stays small."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from corpus import NAMES, reading, record
from msgspec.structs import replace

from pytest_kernelprof.analysis.round_events import timeline_of_round
from pytest_kernelprof.analysis.session_profile import session_facts
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.document import (
    MOST_KERNELS,
    Document,
    Run,
    Test,
    bounded,
    pack,
    unpack,
)
from pytest_kernelprof.records.profile import (
    Collective,
    Kernel,
    KernelGroup,
    Place,
    Profile,
    Timeline,
    Verdict,
)

KERNEL = Kernel("gelu", 2.0, (1, 1, 1), (32, 1, 1), 8, 0, 0, 7, "cudaLaunchKernel", ("aten::gelu",))


def run_of(*profiles: Profile) -> Run:
    test = Test("tests/test_it.py::test_it", profiles, outcome="failed", place=Place("t.py", 3))
    return Run((test,), "2026-11-22T08:50:00Z", {"pytest": "9.2.0"}, ("interrupted",))


def read(data: bytes) -> Run:
    return unpack(codec.decode(data, Document))


def with_timeline(name: str) -> Profile:
    found = reading(name)
    return replace(record(name), timeline=timeline_of_round(found, session_facts(found).fullest))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_is_read_again(name: str) -> None:
    run = run_of(with_timeline(name), record("mlp"))
    assert read(codec.encode(pack(run))) == run


def test_spills_are_read_again_where_they_are_known() -> None:
    spills = (replace(KERNEL, spills=n) for n in (None, 0, 7_872))
    (kept,) = read(codec.encode(pack(run_of(replace(record("mlp"), kernels=(*spills,)))))).tests
    assert [one.spills for one in kept.profiles[0].kernels] == [None, 0, 7_872]


def test_equal_runs_are_equal_bytes() -> None:
    run = run_of(record("mlp"))
    data = codec.encode(pack(run))
    assert codec.encode(pack(read(data))) == data


def test_a_name_and_an_environment_stand_in_it_once() -> None:
    document = pack(run_of(*[record("mlp")] * 3))
    assert len(document.environments) == 1
    assert len(set(document.names)) == len(document.names)
    (name,) = {kernel.name for kernel in record("mlp").kernels if "Gelu" in kernel.name}
    assert codec.encode(document).count(msgspec.json.encode(name)) == 1


def test_500_profiles_of_20_kernels_are_below_5_mb() -> None:
    profile = with_timeline("backward")
    kernels = (profile.kernels * 20)[:20]
    metrics = {
        name: replace(one, rounds=(one.rounds * 12)[:12]) for name, one in profile.metrics.items()
    }
    big = replace(profile, kernels=kernels, metrics=metrics)
    assert len(codec.encode(pack(run_of(*[big] * 500)))) < 5e6


def test_beyond_2000_kernels_are_kept_by_name() -> None:
    many = (*[KERNEL] * (MOST_KERNELS + 3), replace(KERNEL, name="mul", duration_us=0.5))
    kept = bounded(replace(record("empty"), kernels=many))
    assert len(kept.kernels) == MOST_KERNELS
    assert kept.more_kernels == (KernelGroup("gelu", 3, 6.0), KernelGroup("mul", 1, 0.5))
    assert bounded(kept) == kept
    assert read(codec.encode(pack(run_of(kept)))) == run_of(kept)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"names": [""]}, "is not a place in the file's names, which has 1"),
        ({"environments": []}, "is not a place in the file's environments, which has 0"),
        ({"metrics": {}}, "the metric '[a-z_]+' is not among the file's metrics"),
    ],
)
def test_a_file_that_refers_to_what_it_does_not_have_names_the_test(
    change: dict[str, Any], words: str
) -> None:
    plain = msgspec.json.decode(codec.encode(pack(run_of(record("mlp")))))
    changed = codec.from_builtins({**plain, **change}, Document)
    with pytest.raises(ValueError, match=f"test 'tests/test_it.py::test_it': .*{words}"):
        unpack(changed)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"lane": ()}, "columns of its timeline have different lengths"), ({"kind": "?"}, "unknown")],
)
def test_a_timeline_that_does_not_fit_together_is_refused(
    change: dict[str, Any], words: str
) -> None:
    timeline = Timeline(("kernel",), ("gelu",), ("device 0 stream 7",), (0.0,), (1.0,), (3,))
    document = pack(run_of(replace(record("mlp"), timeline=timeline)))
    (row,) = document.timelines
    with pytest.raises(ValueError, match=words):
        unpack(replace(document, timelines=(replace(row, **change),)))
    with pytest.raises(ValueError, match="0 is not a place in the file's timelines"):
        unpack(replace(document, timelines=()))


def test_negative_places_are_none() -> None:
    document = pack(run_of(record("mlp")))
    (test,) = document.tests
    (profile,) = test.profiles
    wrong = replace(profile, kernels=(replace(profile.kernels[0], name=-1),))
    with pytest.raises(ValueError, match="-1 is not a place"):
        unpack(replace(document, tests=(replace(test, profiles=(wrong,)),)))


def test_other_json_is_no_run() -> None:
    with pytest.raises(ValueError, match=r"format|schema"):
        codec.decode(b'{"schema": 1, "format": "a shopping list"}', Document)


def of_ranks(*profiles: Profile) -> Profile:
    first, *others = (replace(one, rank=rank) for rank, one in enumerate(profiles))
    return replace(first, other_ranks=tuple(others))


def test_ranks_are_read_again_and_the_kernels_of_those_that_do_the_same_are_left_out() -> None:
    mlp, collective = record("mlp"), Collective(kernel=0, group="0", ranks=(0, 1), rounds_us=(2.0,))
    slower = replace(
        mlp,
        metrics={},
        collectives=(collective,),
        verdicts=(Verdict(ranks=(1,), limit="x", outcome="failed"),),
    )
    (found,) = (
        read(codec.encode(pack(run_of(of_ranks(mlp, slower, record("backward"))))))
        .tests[0]
        .profiles
    )
    assert [one.rank for one in found.ranks] == [0, 1, 2]
    assert found.kernels == mlp.kernels
    alike, other = found.other_ranks
    assert alike == replace(slower, rank=1, kernels=(), copies=(), waits=(), kernels_kept=False)
    assert other.kernels == record("backward").kernels
    assert read(codec.encode(pack(run_of(found)))) == run_of(found)


def test_of_a_rank_whose_timeline_is_shown_the_kernels_are_kept() -> None:
    mlp = record("mlp")
    shown = replace(mlp, timeline=Timeline(kind=("kernel",), name=("k",), lane=("s",),
        start_us=(0.0,), duration_us=(1.0,), correlation=(0,)))  # fmt: skip
    document = codec.encode(pack(run_of(of_ranks(mlp, mlp, shown))))
    (found,) = read(document).tests[0].profiles
    assert [one.kernels_kept for one in found.ranks] == [True, False, True]
    assert found.ranks[2] == replace(shown, rank=2)


def test_a_rank_of_a_rank_is_refused() -> None:
    nested = of_ranks(record("empty"), of_ranks(record("empty"), record("empty")))
    with pytest.raises(ValueError, match=r"test_it.*a profile of another rank has other ranks"):
        unpack(pack(run_of(nested)))
