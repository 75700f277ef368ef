"""Plays the owed rows of a run, a bounded number at once, and stores each as it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gavel.envs.failure_policy import FailureWatch
from gavel.envs.types import Digests, Environment, Finish, Outcome, Result, RewardPolicy, Timing, Transcript
from gavel.launch.running.episode import Policy, PolicyNeeded, Stopwatch, play
from gavel.launch.running.folder import RunFolder
from gavel.launch.running.inputs import PlannedRow
from gavel.launch.running.journal import RowJournal, RowState
from gavel.models.errors import GavelError
from gavel.models.failures import Failure, FailureKind


@dataclass(slots=True)
class Counts:
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

    def oldest(self) -> float:
        """Return the age in seconds of the oldest row in work; 0 without any."""
        now = time.perf_counter()
        return max((now - watch.begun for watch in self.running), default=0.0)


@dataclass(frozen=True, slots=True)
class OwedRow:
    """A row to be played: what its journal knows, and which attempt this is (from 1)."""

    row: PlannedRow
    state: RowState
    attempt: int


class Collector:
    """Plays rows and stores them.

    Args:
        environment: whose transitions are played.
        reward: applied to graded outcomes.
        policy: None where no reply may be asked for; rows that need one are passed over and counted as skipped.
        folder: the run folder, open for writing.
        watch: the failure policy at work.
        digests: stored in each row.
        on_end: called with each stored result, for progress and metrics.
        spent: asked before each row; a reason says that none may be begun any more.
    """

    def __init__(
        self,
        environment: Environment,
        reward: RewardPolicy,
        policy: Policy | None,
        folder: RunFolder,
        watch: FailureWatch,
        digests: Digests,
        on_end: Callable[[Result], None],
        spent: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._environment, self._reward, self._policy = environment, reward, policy
        self._folder, self._watch, self._digests, self._on_end = folder, watch, digests, on_end
        self._spent, self._over_budget = spent, False
        self.counts = Counts(0)
        self.stopped: str | None = None

    async def collect(self, owed: Iterable[OwedRow], total: int, concurrency: int) -> str | None:
        """Play every owed row, at most ``concurrency`` at once; return why the run stopped early, or None.

        After a stop, running rows settle. Each row not begun is stored as ``cancelled`` if failures stopped the run; a spent budget
        leaves no row behind, and neither does cancellation.

        Raises:
            GavelError: a row could not be stored, or the reward policy refuses an outcome.
        """
        self.counts.planned = total
        rows = iter(owed)
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(min(concurrency, max(total, 1))):
                    workers.create_task(self._work(rows))
        except* GavelError as group:
            raise _first(group) from None
        for left in rows if not self._over_budget else ():
            self._store(left, _cancelled(self.stopped or ""), Stopwatch(), time.time(), 0.0, observe=False)
        return self.stopped

    async def _work(self, rows: Iterator[OwedRow]) -> None:
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
                await self._play(owed, watch)
            finally:
                self.counts.running.discard(watch)

    async def _play(self, owed: OwedRow, watch: Stopwatch) -> None:
        row, started, begun = owed.row, time.time(), watch.begun
        journal = RowJournal(self._folder.journal, row.key, owed.attempt, owed.state)
        try:
            finish = await play(self._environment, row.task, row.rollout_index, journal, self._policy, watch)
        except PolicyNeeded:
            self.counts.skipped += 1
            return
        self._store(owed, finish, watch, started, time.perf_counter() - begun)

    def _store(self, owed: OwedRow, finish: Finish, watch: Stopwatch, started: float, total_s: float, *, observe: bool = True) -> None:
        row, outcome = owed.row, finish.outcome
        reward = self._reward.reward(outcome) if outcome.graded else None
        result = Result(
            task_id=row.task.task_id,
            task_digest=row.task_digest,
            rollout_index=row.rollout_index,
            attempt=owed.attempt,
            status="graded" if outcome.graded else "judge_error",
            transcript=Transcript((owed.state.messages or ()) + finish.messages),
            outcome=outcome,
            reward=reward,
            receipts=owed.state.receipts + finish.receipts,
            timing=Timing(started, watch.policy_s, watch.step_s, total_s),
            digests=self._digests,
            metadata=_kept(row.task.metadata),
            fallback_reward=None if outcome.graded else 0.0,
        )
        self._folder.add(result)
        self._folder.heartbeat()
        self._count(result)
        if observe and self.stopped is None:
            self.stopped = self._watch.observe(graded=outcome.graded)
        self._on_end(result)

    def _count(self, result: Result) -> None:
        if result.reward is not None:
            self.counts.graded += 1
            self.counts.rewards += result.reward.value
        elif result.outcome.failure is not None:
            kind = result.outcome.failure.kind
            self.counts.ungraded[kind] = self.counts.ungraded.get(kind, 0) + 1


def _kept(metadata: Mapping[str, object]) -> Mapping[str, object]:
    """Return the metadata that metrics slice by; long texts stay in ``inputs.jsonl``."""
    return {key: value for key, value in metadata.items() if isinstance(value, str | int | float | bool) and len(str(value)) <= 200}


def _cancelled(reason: str) -> Finish:
    return Finish(Outcome("", failure=Failure(FailureKind.CANCELLED, "run", f"not begun, the run was stopped: {reason}")))


def _first(group: BaseExceptionGroup[GavelError]) -> GavelError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, GavelError)
    return error
