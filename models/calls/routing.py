"""Routing over the replicas of a service: the ring, fed by what calls meet, and the health probes that bring replicas
back.

Probes are asked for by calls, not by a clock: while nobody calls, nobody needs to know. They generate nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from gavel.models.calls.replicas import PROBE_PATIENCE, Ring
from gavel.models.calls.retry import TRANSPORT_ERRORS, Refusal
from gavel.models.calls.transport import Transport
from gavel.models.failures import FailureKind

_NO_SUCH_PATH = frozenset((401, 403, 404, 405, 501))


def _ignore_line(line: str) -> None:
    pass


class Router:
    """Chooses the replica of each call. With one replica there is nothing to choose, and the service's breaker alone
    judges it.

    Args:
        name: the service's name, for lines of progress.
        bases: the replicas' base URLs.
        path: of the calls, after a base URL.
        least: ``min_replicas``.
        capacity: ``max_in_flight``.
        transport: the service's; probes go over it.
        clock: monotonic seconds.
        progress: told when a replica leaves or comes back, one line each.
    """

    def __init__(
        self,
        name: str,
        bases: Sequence[str],
        path: str,
        *,
        least: int,
        capacity: int,
        transport: Transport,
        clock: Callable[[], float],
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self._name, self._transport, self._clock = name, transport, clock
        self._bases = [base.rstrip("/") for base in bases]
        self._urls = [base + path for base in self._bases]
        self._progress = progress or _ignore_line
        self._ring = Ring(self._bases, least, capacity)
        self._several = len(self._bases) > 1
        self._probes: set[asyncio.Task[None]] = set()

    @property
    def ring(self) -> Ring:
        """The replicas' states."""
        return self._ring

    @property
    def problem(self) -> str | None:
        """Why no call may be made (too few replicas are alive), or None."""
        return self._ring.problem

    def pick_replica(self, prefix_key: str, tried: Collection[int]) -> int | None:
        """Return the replica for a try, or None if too few are alive; asks for probes that are due."""
        if not self._several and self._ring.whole:
            return 0
        if not self._ring.whole:
            self._probe_absent()
        return self._ring.choose_replica(prefix_key, tried)

    def get_url(self, index: int) -> str:
        """Return where the calls to a replica go."""
        return self._urls[index]

    def get_any_base(self) -> str:
        """Return the base URL of a replica that is alive, else of the first."""
        return self._bases[self._ring.choose_replica("") or 0] if self._several else self._bases[0]

    def is_usable(self, index: int) -> bool:
        """Tell whether a replica is in."""
        return self._ring.get_state(index) == "in"

    def lose_replica(self, index: int, reason: str) -> None:
        """Take a replica out for good: its server is ours and ended."""
        self._ring.remove_replica(index, reason)

    def record_answer(self, index: int) -> None:
        """Note that a replica answered."""
        if self._several and self._ring.record_answer(index):
            self._progress(f"{self._name}: replica {self._bases[index]} is back")

    def record_failure(self, index: int, refusal: Refusal) -> None:
        """Note a failed try: one that says that the replica may be dead, or one that shows it alive."""
        if not self._several or refusal.kind is FailureKind.SHUTDOWN:
            return
        if not refusal.broken or (refusal.overloaded and refusal.status is not None):
            self.record_answer(index)
            return
        refused = refusal.kind is FailureKind.TRANSPORT_UNREACHABLE
        if self._ring.record_strike(index, self._clock(), refusal.reason, refused=refused):
            self._tell_absent(index, refusal.reason)
        self._probe_absent()

    def _tell_absent(self, index: int, reason: str) -> None:
        state = "out" if self._ring.get_state(index) == "out" else "suspect"
        self._progress(f"{self._name}: replica {self._bases[index]} is {state}, {self._ring.alive} are alive: {reason}")

    def _probe_absent(self) -> None:
        for index in self._ring.list_due(self._clock()):
            task = asyncio.get_running_loop().create_task(self._probe_replica(index))
            self._probes.add(task)
            task.add_done_callback(self._probes.discard)

    async def _probe_replica(self, index: int) -> None:
        problem = await probe_replica(self._transport, self._bases[index])
        if not self._ring.record_probe(index, self._clock(), problem):
            return
        if problem is None:
            self._progress(f"{self._name}: replica {self._bases[index]} is back")
        else:
            self._tell_absent(index, problem)

    async def close(self) -> None:
        """End running probes."""
        mine = [task for task in self._probes if task.get_loop() is asyncio.get_running_loop()]
        for task in mine:
            task.cancel()
        if mine:
            await asyncio.wait(mine)


def probe_urls(base: str) -> tuple[str, str]:
    """Return where a replica is asked whether it lives: ``/health`` (vLLM, SGLang), then the list of models that every
    server has.
    """
    base = base.rstrip("/")
    return base.removesuffix("/v1") + "/health", base + "/models"


async def probe_replica(transport: Transport, base: str) -> str | None:
    """Ask a replica whether it lives; nothing is generated. Return None if it does, else why not."""
    for url in probe_urls(base):
        try:
            answered = await transport.get(url, PROBE_PATIENCE / 2)
        except TRANSPORT_ERRORS as error:
            return f"{url}: {transport.redact_secrets(str(error) or type(error).__name__)}"[:300]
        if answered.status not in _NO_SUCH_PATH:
            return None if answered.status < 400 else f"{url} answered {answered.status}"
    return None  # it answers, though it shows nothing of this to us
