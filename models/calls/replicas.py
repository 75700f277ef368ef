"""The replicas of one service: which one a call goes to, and which are out. A pure state machine; times are passed in
(monotonic s).

Placement is rendezvous hashing: each prefix ranks the replicas by a hash of both, and its calls go to the first one
that is in. So a replica that leaves gives its own prefixes to the others and moves no other prefix, and gets them back
when it returns. A relief valve bounds the load (after consistent hashing with bounded loads, Mirrokni et al. 2018): a
replica that has ``SPILL`` times its even share of all the calls there may be in flight passes the next one on to the
second in rank. The bound follows the limit and not the load of the moment, which is uneven whenever there is little to
do. A call without a prefix goes to the least loaded.

A replica is ``in``; ``suspect`` after ``STRIKES`` failed tries in a row (used only while no other is in); ``out`` when
it took no connection or did not answer a health probe; ``gone`` for good when its server is ours and ended. A suspect
is probed at once, and one that is out after a pause. A probe it answers brings it back on probation: until it answers a
call, one failed try makes it suspect again, and each pause is twice the last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

SPILL = 1.5
FLOOR = 16
"""The valve opens above ``SPILL`` times the even share, and never below ``FLOOR`` calls: a conversation, or the 16
rollouts of one question, stay on one replica."""

STRIKES = 3
"""Failed tries in a row; where 30 % of tries break at random, 1 in 37 gets there, and the probe brings it back at
once.
"""

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 10.0
"""Seconds before an absent replica is probed again."""

PROBE_PATIENCE = 10.0
"""Seconds a probe may take; one that said nothing for twice as long is forgotten (its event loop ended)."""

_REMEMBERED = 8192  # prefixes whose ranking is kept

State = Literal["in", "suspect", "out", "gone"]


@dataclass(slots=True)
class _Replica:
    name: str
    state: State = "in"
    strikes: int = 0
    reason: str = ""
    pause: float = FIRST_PAUSE
    probe_at: float = 0.0
    probing_since: float | None = None


class Ring:
    """The replicas of one service; every method is called from one thread.

    Args:
        names: the replicas, by what stays the same over their restarts; the placement follows from it.
        least: with fewer alive (in or suspect) no call may be made.
        capacity: most calls in flight over all of them.
    """

    def __init__(self, names: Sequence[str], least: int = 1, capacity: int = 64) -> None:
        self._replicas = [_Replica(name) for name in names]
        self._least, self._capacity = least, capacity
        self._ranks: dict[str, tuple[int, ...]] = {}
        self._turn = 0
        self._in = tuple(range(len(names)))
        self._alive = len(names)
        self.load = [0] * len(names)
        """Calls in flight, by replica."""

    @property
    def alive(self) -> int:
        """How many are in or suspect."""
        return self._alive

    @property
    def whole(self) -> bool:
        """Whether every replica is in."""
        return len(self._in) == len(self._replicas)

    def get_state(self, index: int) -> State:
        """Return the state of a replica."""
        return self._replicas[index].state

    @property
    def problem(self) -> str | None:
        """Why no call may be made, with the newest reason of each absent replica; None if calls may be made."""
        if self._alive >= self._least:
            return None
        absent = "; ".join(f"{each.name}: {each.reason}" for each in self._replicas if each.state in ("out", "gone"))
        return f"{self._alive} of {len(self._replicas)} replicas are alive, min_replicas={self._least}; {absent}"

    def choose_replica(self, prefix_key: str, tried: Collection[int] = ()) -> int | None:
        """Return the replica for a call, or None if too few are alive.

        Args:
            prefix_key: names the prefix it shares with others; empty for none.
            tried: replicas that failed this call before; used again only if there is no other.
        """
        if self._alive < self._least or self._alive == 0:
            return None
        usable = self._in
        if tried and any(index in tried for index in usable):
            usable = tuple(index for index in usable if index not in tried) or usable
        usable = usable or self._find_suspects(tried)
        return self._place_call(prefix_key, usable) if prefix_key else self._find_least_loaded(usable)

    def _find_suspects(self, tried: Collection[int]) -> tuple[int, ...]:
        found = tuple(index for index, each in enumerate(self._replicas) if each.state == "suspect")
        return tuple(index for index in found if index not in tried) or found

    def _place_call(self, prefix_key: str, usable: tuple[int, ...]) -> int:
        bound = max(FLOOR, SPILL * self._capacity / len(usable))
        for index in self._ranks.get(prefix_key) or self._rank_replicas(prefix_key):
            if index in usable and self.load[index] < bound:
                return index
        return self._find_least_loaded(usable)

    def _rank_replicas(self, prefix_key: str) -> tuple[int, ...]:
        if len(self._ranks) >= _REMEMBERED:
            self._ranks.clear()
        key = prefix_key.encode("utf-8", "surrogatepass")
        weights = [hashlib.blake2b(key + b"\n" + each.name.encode(), digest_size=8).digest() for each in self._replicas]
        self._ranks[prefix_key] = rank = tuple(sorted(range(len(weights)), key=weights.__getitem__))
        return rank

    def _find_least_loaded(self, usable: tuple[int, ...]) -> int:
        self._turn += 1  # among equals in turn
        size = len(self._replicas)
        return min(usable, key=lambda index: (self.load[index], (index - self._turn) % size))

    def enter(self, index: int) -> None:
        """Note that a call goes to a replica."""
        self.load[index] += 1

    def leave(self, index: int) -> None:
        """Note that a call left it, however it ended."""
        self.load[index] -= 1

    def record_answer(self, index: int) -> bool:
        """Note that a replica answered a call; tell whether that brought it back."""
        each = self._replicas[index]
        each.strikes, each.pause = 0, FIRST_PAUSE
        if each.state in ("in", "gone"):
            return False
        self._set_state(each, "in")
        return True

    def record_strike(self, index: int, now: float, reason: str, *, refused: bool) -> bool:
        """Note a try that a replica failed; tell whether that put it out of use.

        Args:
            index: the replica.
            now: monotonic seconds.
            reason: for a person.
            refused: it took no connection, which needs no further proof.
        """
        each = self._replicas[index]
        each.strikes += 1
        if each.state == "gone" or (each.state == "out" and refused):
            return False
        each.reason = reason
        if refused:
            self._put_out(each, now)
            return True
        if each.state == "in" and each.strikes >= STRIKES:
            self._set_state(each, "suspect")
            each.probe_at = now if each.pause == FIRST_PAUSE else now + each.pause
            return True
        return False

    def remove_replica(self, index: int, reason: str) -> None:
        """Take a replica out for good."""
        each = self._replicas[index]
        each.reason = reason
        self._set_state(each, "gone")

    def list_due(self, now: float) -> list[int]:
        """Return the replicas to be probed now; each is named once until ``record_probe`` is called."""
        found = []
        for index, each in enumerate(self._replicas):
            asked = each.probing_since is not None and now - each.probing_since < 2 * PROBE_PATIENCE
            if each.state in ("suspect", "out") and not asked and now >= each.probe_at:
                each.probing_since = now
                found.append(index)
        return found

    def record_probe(self, index: int, now: float, problem: str | None) -> bool:
        """Note what a probe found (None: it lives); tell whether that changed the replica's state."""
        each = self._replicas[index]
        each.probing_since = None
        if each.state in ("in", "gone"):
            return False
        if problem is None:
            self._set_state(each, "in")
            each.strikes, each.pause = STRIKES - 1, min(2 * each.pause, LONGEST_PAUSE)
            return True
        was, each.reason = each.state, problem
        self._put_out(each, now)
        return was != "out"

    def _put_out(self, each: _Replica, now: float) -> None:
        each.probe_at = now + each.pause
        each.pause = min(2 * each.pause, LONGEST_PAUSE)
        self._set_state(each, "out")

    def _set_state(self, each: _Replica, state: State) -> None:
        each.state = state
        self._in = tuple(index for index, other in enumerate(self._replicas) if other.state == "in")
        self._alive = sum(other.state in ("in", "suspect") for other in self._replicas)
