"""Plays the owed rows of a run, a bounded number at once, and stores each as it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from gavel.envs.episode import EpisodeState, Policy, Stopwatch
from gavel.envs.failure_policy import FailureWatch
from gavel.envs.play import EpisodePlayer, PolicyNeeded, end_ungraded
from gavel.envs.types import Result, Timing
from gavel.launch.runs.folder import RunFolder
from gavel.launch.runs.inputs import PlannedRow
from gavel.launch.runs.journal import RowJournal
from gavel.models.errors import GavelError
from gavel.models.failures import FailureKind


@dataclass(slots=True)
class RowCounts:
    """How far a run is: rows planned here, ended graded and ungraded, and where the running ones stand."""

    planned: int
    graded: int = 0
    ungraded: dict[FailureKind, int] = field(default_factory=dict)
    skipped: int = 0
    rewards: float = 0.0
    running: set[Stopwatch] = field(default_factory=set)

    @property
    def ended(self) -> int:
        """Rows that ended, however."""
        return self.graded + sum(self.ungraded.values()) + self.skipped

    def compute_oldest(self) -> float:
        """Return the age in seconds of the oldest row in work; 0 without any."""
        now = time.perf_counter()
        return max((now - watch.begun for watch in self.running), default=0.0)


@dataclass(frozen=True, slots=True)
class OwedRow:
    """A row to be played: what its journal knows, and which attempt this is (from 1)."""

    row: PlannedRow
    state: EpisodeState
    attempt: int


class Collector:
    """Plays rows and stores them.

    Args:
        player: plays the episodes and makes their results.
        policy: None where no reply may be asked for; rows that need one are passed over and counted as skipped.
        folder: the run folder, open for writing.
        watch: the failure policy at work.
        on_end: called with each stored result, for progress and metrics.
        spent: asked before each row; a reason says that none may be begun any more.
    """

    def __init__(
        self,
        player: EpisodePlayer,
        policy: Policy | None,
        folder: RunFolder,
        watch: FailureWatch,
        on_end: Callable[[Result], None],
        spent: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._player, self._policy = player, policy
        self._folder, self._watch, self._on_end = folder, watch, on_end
        self._spent, self._over_budget = spent, False
        self.counts = RowCounts(0)
        self.stopped: str | None = None

    async def collect_rows(self, owed: Iterable[OwedRow], total: int, concurrency: int) -> str | None:
        """Play every owed row, at most ``concurrency`` at once; return why the run stopped early, or None.

        After a stop, running rows settle. Each row not begun is stored as ``cancelled`` if failures stopped the run; a
        spent budget leaves no row behind, and neither does cancellation.

        Raises:
            GavelError: a row could not be stored.
        """
        self.counts.planned = total
        rows = iter(owed)
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(min(concurrency, max(total, 1))):
                    workers.create_task(self._work_rows(rows))
        except* GavelError as group:
            raise _find_first(group) from None
        for left in rows if not self._over_budget else ():
            self._store_result(self._cancel_row(left))
        return self.stopped

    async def _work_rows(self, rows: Iterator[OwedRow]) -> None:
        while self.stopped is None:
            owed = next(rows, None)
            if owed is None:
                return
            if (spent := self._spent()) is not None:
                self.stopped, self._over_budget = spent, True
                return
            watch = Stopwatch(begun=time.perf_counter())
            self.counts.running.add(watch)
            try:
                await self._play_row(owed, watch)
            finally:
                self.counts.running.discard(watch)

    async def _play_row(self, owed: OwedRow, watch: Stopwatch) -> None:
        row = owed.row
        journal = RowJournal(self._folder.journal, row.key, owed.attempt, owed.state)
        try:
            result = await self._player.play_episode(
                row.task, self._policy, journal, watch, rollout_index=row.rollout_index, attempt=owed.attempt
            )
        except PolicyNeeded:
            self.counts.skipped += 1
            return
        self._store_result(replace(result, metadata=_keep_slices(row.task.metadata)))
        if self.stopped is None and result.status != "invalid_task":  # a bad row says nothing of judges
            self.stopped = self._watch.observe_result(graded=result.outcome.graded)

    def _cancel_row(self, owed: OwedRow) -> Result:
        """Return the result of a row that is not begun any more."""
        finish = end_ungraded(FailureKind.CANCELLED, "run", f"not begun, the run was stopped: {self.stopped}")
        return self._player.make_result(
            owed.row.task,
            owed.state.transcript,
            replace(finish, receipts=owed.state.receipts),
            Timing(time.time(), 0.0, 0.0, 0.0),
            rollout_index=owed.row.rollout_index,
            attempt=owed.attempt,
            metadata=_keep_slices(owed.row.task.metadata),
        )

    def _store_result(self, result: Result) -> None:
        self._folder.add_result(result)
        self._folder.renew_lease()
        self._count_result(result)
        self._on_end(result)

    def _count_result(self, result: Result) -> None:
        if result.reward is not None:
            self.counts.graded += 1
            self.counts.rewards += result.reward.value
        elif result.outcome.failure is not None:
            kind = result.outcome.failure.kind
            self.counts.ungraded[kind] = self.counts.ungraded.get(kind, 0) + 1


def _keep_slices(metadata: Mapping[str, object]) -> Mapping[str, object]:
    """Return the metadata that metrics slice by; long texts stay in ``inputs.jsonl``."""
    return {
        key: value
        for key, value in metadata.items()
        if isinstance(value, str | int | float | bool) and len(str(value)) <= 200
    }


def _find_first(group: BaseExceptionGroup[GavelError]) -> GavelError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, GavelError)
    return error
