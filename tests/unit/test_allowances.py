"""``allow`` in library code: what it costs where no test measures, and what it annotates."""

from __future__ import annotations

import contextlib
import threading
import timeit
from collections.abc import Iterator

import pytest
from test_public_names import fresh

import pytest_kernelprof
from pytest_kernelprof import allow
from pytest_kernelprof.allowances import allowed_by, recorded_by


class Annotated:
    """Notes what is annotated, and by which thread it is left."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.left: list[tuple[str, int]] = []

    @contextlib.contextmanager
    def __call__(self, text: str) -> Iterator[None]:
        self.entered.append(text)
        yield
        self.left.append((text, threading.get_ident()))


def test_library_code_loads_neither_torch_nor_pytest() -> None:
    code = (
        "import sys\n"
        "known = set(sys.modules)\n"
        "import pytest_kernelprof\n"
        "with pytest_kernelprof.allow('syncs', why='logging'): pass\n"
        "loaded = set(sys.modules) - known\n"
        "print(sorted({one for one in loaded if one.split('.')[0] not in sys.stdlib_module_names}))"
    )
    ours = ["pytest_kernelprof" + one for one in ("", ".allowances", ".system", ".units")]
    assert fresh(code) == repr(ours)


def test_a_block_costs_some_microseconds_where_nothing_is_recorded() -> None:
    def block() -> None:
        with pytest_kernelprof.allow("syncs", why="logging"):
            pass

    least = min(timeit.repeat(block, number=1000, repeat=20)) / 1000
    assert least < 20e-6  # about 1 us; a machine under load has some


def test_the_name_is_looked_up_once() -> None:
    assert vars(pytest_kernelprof)["allow"] is allow


def test_a_block_is_annotated_only_while_a_round_is_recorded() -> None:
    annotated = Annotated()
    with allow("syncs", why="before"):
        pass
    with recorded_by(annotated):
        with allow("syncs", "copies", why="logging"):
            assert not annotated.left
        assert len(annotated.left) == 1
    with allow("syncs", why="after"):
        pass
    (text,) = annotated.entered
    kinds, reason = allowed_by(text)
    assert kinds == ["syncs", "copies"]
    assert reason.startswith("logging (test_allowances.py:")


def test_a_block_that_outlives_the_round_is_left() -> None:
    annotated, block = Annotated(), allow("syncs", why="long")
    with recorded_by(annotated):
        block.__enter__()
    block.__exit__(None, None, None)
    block.__exit__(None, None, None)  # it was entered once
    assert len(annotated.left) == 1


def test_each_thread_leaves_its_own_annotations() -> None:
    annotated, shared, first = Annotated(), allow("syncs", why="shared"), threading.Event()
    entered = threading.Barrier(2)

    def work(*, leaves_first: bool) -> None:
        with shared:
            entered.wait(30)
            if not leaves_first:
                assert first.wait(30)
        first.set()

    with recorded_by(annotated):
        threads = [
            threading.Thread(target=work, kwargs={"leaves_first": one}) for one in (False, True)
        ]
        for one in threads:
            one.start()
        numbers = [one.ident for one in threads]
        for one in threads:
            one.join(30)
    assert [thread for _, thread in annotated.left] == numbers[::-1]


@pytest.mark.parametrize("why", ["logging", '50% # of "all" \\ it\n', "ü", "\x1b[31m", "+#+"])
def test_a_reason_is_read_as_it_was_written_but_for_what_is_not_printable(why: str) -> None:
    annotated = Annotated()
    with recorded_by(annotated), allow("kernels", why=why):
        pass
    (text,) = annotated.entered
    assert text.isascii()
    assert not set('"\\\n\x1b') & set(text)
    kinds, reason = allowed_by(text)
    escaped = why.replace("\n", "\\n").replace("\x1b", "\\x1b")
    assert (kinds, reason.rpartition(" (")[0]) == (["kernels"], escaped)


@pytest.mark.parametrize("text", ["", "#", "nothing", "%", "kernels#%zz%ff", "syncs+#%0a"])
def test_a_text_that_is_not_ours_is_no_error(text: str) -> None:
    _, reason = allowed_by(text)
    assert reason.isprintable()
