"""A GPU's lock that is shared by all whose code runs on the GPU, and held alone by who times.

Whoever holds the *room* alone, and sees all seats empty but its own, has the GPU to itself. Before
it comes the *turnstile*: who times holds it alone until the room is free, and whose code is to run
share it until they sit. So a stream of the latter does not keep who times waiting, and those whom
a stream of the former keeps waiting pass together, before the next. Nobody goes from sharing to
alone in one step, where two would wait for each other: who sits stands up first.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING

from pytest_kernelprof.clock import now_s
from pytest_kernelprof.device import notes, seats
from pytest_kernelprof.device.filelocks import FileLock, held_alone
from pytest_kernelprof.device.whole_lock import BEHIND_S, WholeLock, wait
from pytest_kernelprof.system import Real

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NEXT_S = 0.001
_MOST_NAMED = 4


class SharedLock(WholeLock):
    """What this process holds of it: its share while its code runs, all of it while it times."""

    def __init__(self, folder: Path, uuid: str) -> None:
        super().__init__(folder, uuid)
        self._token, self._owners = _identity(Real.getpid())
        self._turnstile = FileLock(folder / f"{uuid}.turn")
        self._room = FileLock(self.path)
        self._own = seats.OwnSeat(folder, uuid, self._token)
        self._joined = 0
        self._covered = self._in_room = False
        self._stood: list[seats.Seat] = []
        self._patient = True
        self._timeout_s = 0.0

    def join(self, timeout_s: float, who: str) -> None:
        """Sit, or go on without where there are no files or no locks."""
        self._joined += 1
        if self._joined == 1 and not self._alone:
            with contextlib.suppress(OSError):
                self._own.say(who, self._owners)
                self._sit(self._own, timeout_s)

    def leave(self) -> None:
        """Stand up."""
        self._joined -= 1
        if not self._joined and self._own.taken:
            with contextlib.suppress(OSError):
                self._own.stand()

    def stop(self) -> None:
        """Stand up, or leave the room."""
        with contextlib.suppress(OSError):
            if self._in_room:
                self._leave_room()
            elif self._own.taken:
                self._own.stand()

    def go_on(self, timeout_s: float, who: str) -> None:
        """What cannot be had back in time is gone; ``lost`` tells it of the room."""
        with contextlib.suppress(OSError):
            if self._alone and not self._covered:
                if not self._enter(now_s() + timeout_s, who):
                    self.lost = f"after a stop in the debugger the GPU {self._not_free(timeout_s)}"
            elif self._joined:
                self._own.say(who, self._owners)
                self._sit(self._own, timeout_s)

    def kept_at_rest(self) -> frozenset[int]:
        """While this process has the room, whoever lives and does not sit, and its owners."""
        if not self._in_room:
            return frozenset()
        found = seats.living(self.folder, self.uuid)
        return frozenset(note.pid for note, sits in found if not sits or note.token in self._owners)

    def partners(self) -> frozenset[int]:
        """Of who is alone those that work for it, and of each of these the others and it itself.

        Only those that have a seat: of others nothing is known but what they do.
        """
        ours = self._owners if self._covered else (self._token,)
        return frozenset(
            note.pid
            for note, _ in seats.living(self.folder, self.uuid)
            if note.token in ours or set(ours).intersection(note.owners)
        )

    def _take(self, timeout_s: float, who: str) -> bool:
        self._covered = self._owner_is_alone()
        if self._covered:
            return True
        self._timeout_s = timeout_s
        self._stood = list(self._seats())
        for seat in self._stood:
            seat.stand()
        entered = False
        try:
            entered = self._enter(now_s() + timeout_s, who)
        finally:
            if not entered:
                self._sit_again(0.0)
        return entered

    def _give_back(self) -> None:
        with contextlib.suppress(OSError):
            self._leave_room()
            self._sit_again(self._timeout_s)

    def _holders(self) -> Iterator[str]:
        if held_alone(self.path):
            yield from super()._holders()
        with contextlib.suppress(OSError):
            found = list(seats.taken_by(self.folder, self.uuid, self._token))
            known = [note.words for note in found if note is not None]
            yield from known[:_MOST_NAMED]
            if len(found) > len(known[:_MOST_NAMED]):
                yield f"{len(found) - len(known[:_MOST_NAMED])} more"

    def _enter(self, deadline: float, who: str) -> bool:
        """Have the room alone, and all seats empty."""
        entered = False
        try:
            self._in_room = wait(self._turnstile.take, deadline, BEHIND_S) and wait(
                self._room.take, deadline, _NEXT_S
            )
            if self._in_room:
                self._turnstile.release()
                notes.write(self.note, notes.myself(who, self._token))
                entered = wait(self._all_stand, deadline, _NEXT_S)
        finally:
            self._turnstile.release()
            if not entered:
                self._leave_room()
        return entered

    def _leave_room(self) -> None:
        if self._in_room:
            notes.write(self.note, "")
        self._in_room = False
        self._room.release()

    def _all_stand(self) -> bool:
        for seat in self._stood:  # who looked may have been in the way
            if seat is not self._own:
                seat.stand()
        return not any(True for _ in seats.taken_by(self.folder, self.uuid, self._token))

    def _sit(self, seat: seats.Seat, timeout_s: float) -> None:
        """Pass the turnstile and sit, or go on without: who times sees this process by its work.

        Who was kept out once does not wait again until it gets in: whoever is in the way is stuck.
        """
        deadline = now_s() + (timeout_s if self._patient else 0.0)
        try:
            self._patient = wait(
                lambda: self._turnstile.share() or self._may_pass(seat), deadline, BEHIND_S
            ) and wait(lambda: self._sits(seat), deadline, _NEXT_S)
        finally:
            self._turnstile.release()
            self._room.release()
        if not self._patient:
            seat.give_up()

    def _sits(self, seat: seats.Seat) -> bool:
        """Look at the room once more from the seat: who takes it looks at the seats then. Before,
        so that who waits in it does not see somebody sit down and stand up again and again."""
        if not self._is_open(seat) or not seat.sit():
            return False
        if self._is_open(seat):
            return True
        seat.stand()
        return False

    def _is_open(self, seat: seats.Seat) -> bool:
        """Whether nobody has the room, or it does not matter to this seat."""
        if self._room.share():
            self._room.release()
            return True
        return self._may_pass(seat)

    def _may_pass(self, seat: seats.Seat) -> bool:
        """Whether nobody can have the room to itself but an owner: then one may sit at any time."""
        if seat is not self._own:
            return False
        sitting = (one for one in self._owners_that_sit() if not self._is_away(one))
        return any(True for _ in sitting) or self._owner_is_alone()

    def _sit_again(self, timeout_s: float) -> None:
        stood, self._stood = self._stood, []
        for seat in stood:
            if seat is not self._own or self._joined:
                self._sit(seat, timeout_s)

    def _seats(self) -> Iterator[seats.Seat]:
        """What would keep this process from being alone, and is its own to give up."""
        for owner in self._owners_that_sit():
            yield seats.OwnersSeat(self.folder, self.uuid, owner, self._token)
        if self._own.taken:
            yield self._own

    def _owners_that_sit(self) -> Iterator[str]:
        return (one for one in self._owners if seats.is_taken(self.folder, self.uuid, one))

    def _is_away(self, owner: str) -> bool:
        return seats.is_away(self.folder, self.uuid, owner)

    def _owner_is_alone(self) -> bool:
        if not self._owners or not held_alone(self.path):
            return False
        note = notes.read(self.note)
        return note is not None and note.token in self._owners


def tell_children() -> None:
    """Children are told what the files of this process are called: they work for it."""
    _identity(Real.getpid())


@functools.cache
def _identity(process: int) -> tuple[str, tuple[str, ...]]:
    """What the files of this process are called, which its children are told, and those of the
    processes that it works for."""
    owners = seats.owners()
    token = f"{process}-{Real.urandom(4).hex()}"
    os.environ[seats.PARTNER_OF] = ",".join((*owners, token))
    return token, owners
