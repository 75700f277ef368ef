"""Outcomes made again from stored transcripts and the judge's stored replies; no model is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gavel.envs.assembly import Assembly
from gavel.envs.episode import EpisodeState, MemoryRecord
from gavel.envs.play import EpisodePlayer
from gavel.envs.types import Digests, Finish, Outcome, Result, RewardPolicy, ServiceNeeded, Transcript
from gavel.judges.bindings import add_members
from gavel.launch.runs.files import Tell, refuse_fault
from gavel.launch.runs.inputs import PlannedRow, read_own_messages
from gavel.launch.runs.journal import RowKey, StoredJournal
from gavel.launch.runs.manifest import Manifest, read_lineage
from gavel.launch.runs.stored import Fault, make_fault
from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.types import ChatRequest, Completion


class _NoModel:
    """Stands where a model would be asked."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def complete(self, request: ChatRequest) -> Completion:  # noqa: ARG002
        # not `cancelled`: a member of a panel that failed has no stored reply, and the panel went on without it
        raise ModelFailure(
            FailureKind.JUDGE_FAILED, f"what {self.name} replied is not stored under this version's rubric"
        )


@dataclass(slots=True)
class Rereader:
    """Makes the outcomes of a run again; ``reread`` counts those that could be, ``unread`` the others by reason.

    ``states`` are what is stored of each row, ``rows`` what was planned.
    """

    assembly: Assembly
    rows: Mapping[RowKey, PlannedRow]
    states: StoredStates
    player: EpisodePlayer
    reread: int = 0
    unread: Counter[str] = field(default_factory=Counter)

    @classmethod
    def from_run(
        cls,
        path: Path,
        manifest: Manifest,
        planned: Sequence[PlannedRow],
        assembly: Assembly,
        reward: RewardPolicy,
        tell: Tell = refuse_fault,
    ) -> Rereader:
        """Make one for the run at ``path``; its services are not started yet, and are replaced by ones that call
        nothing.

        Raises:
            RecordError: a journal's line cannot be read, unless ``tell`` takes it.
        """
        assembly.models.set_models({name: _NoModel(name) for name in assembly.services})
        states = StoredStates.from_run(path, manifest, planned, assembly, tell)
        return cls(
            assembly,
            {row.key: row for row in planned},
            states,
            EpisodePlayer(assembly.environment, reward, Digests("", {})),
        )

    async def find_faults(self, result: Result, where: str, tell: Tell) -> None:
        """Tell what of a graded row is not what its stored replies come to."""
        for name, found, right in await self._list_faults(result):
            tell(make_fault(result, where, name, found, right))

    async def _list_faults(self, result: Result) -> Sequence[Fault]:
        key = (result.task_id, result.rollout_index)
        row, state = self.rows.get(key), self.states.read_state(key)
        if row is None or row.task_digest != result.task_digest:
            return []  # told already: of another plan
        if state is None or state.messages is None:
            return self._miss_transcript()
        messages = state.messages
        if result.transcript.messages[: len(messages)] != messages:
            return [("transcript", "other messages", "those of transcripts.jsonl")]
        if lost := _count_lost(result, state):
            return [("receipts", f"{lost} replies of a judge that are not stored", "each in transcripts.jsonl")]
        task = replace(row.task, target=self.assembly.environment.parse_target(row.task.target))
        try:
            said = await self.player.take_step(task, Transcript(messages), MemoryRecord(state))
        except ServiceNeeded as needed:
            self.unread[f"it needs the service {needed}"] += 1
            return []
        if not isinstance(said, Finish):
            return [("transcript", "one that goes on", "a finished one")]
        if said.outcome.failure is not None:
            self.unread[said.outcome.failure.reason] += 1
            return []
        self.reread += 1
        stored, made = _list_facts(result.outcome), _list_facts(said.outcome)
        names = [name for name in {**made, **stored} if stored.get(name) != made.get(name)]
        return [(name, stored.get(name, "none"), made.get(name, "none")) for name in names]

    def _miss_transcript(self) -> Sequence[Fault]:
        if self.states.parent_is_gone:
            self.unread["its transcript stands in the run that this one was made from, which is not there"] += 1
            return []
        return [("transcript", "none in transcripts.jsonl", "the row's own")]


@dataclass(frozen=True, slots=True)
class StoredStates:
    """What is stored of each row in a run and in those it was made from, which hold the transcripts of a child and, of
    a rescored one, its judge's replies."""

    journals: Sequence[
        tuple[StoredJournal, bool]
    ]  # the newest first; whether the judge's replies are those the run was graded by
    bindings: frozenset[str]
    parent_is_gone: bool

    @classmethod
    def from_run(
        cls, path: Path, manifest: Manifest, planned: Sequence[PlannedRow], assembly: Assembly, tell: Tell
    ) -> StoredStates:
        """Read where each row's lines stand."""
        tasks, journals, answered = read_own_messages(planned), [], True
        lineage = read_lineage(path, manifest)
        for folder, above in lineage:
            journals.append((StoredJournal(folder / "transcripts.jsonl", tasks, tell), answered))
            answered = answered and above.kind == "rescore"  # a regraded run asked anew
        return cls(journals, frozenset(add_members(assembly.bindings)), lineage[-1][1].parent is not None)

    def read_state(self, key: RowKey) -> EpisodeState | None:
        """Return what is stored of a row; None for nothing."""
        found: EpisodeState | None = None
        for journal, answered in self.journals:
            state = journal.read_state(key)
            if state is None:
                continue
            if not answered:  # what a simulator said stays
                state.answers = {
                    name: answer for name, answer in state.answers.items() if answer.binding not in self.bindings
                }
            if found is not None:
                state.answers |= found.answers
                if found.messages is not None:
                    state.messages, state.receipts, state.over = found.messages, found.receipts, found.over
            found = state
        return found


def _count_lost(result: Result, state: EpisodeState) -> int:
    stored = {receipt for answer in state.answers.values() for receipt in answer.receipts}
    return sum(receipt.role == "judge" and receipt not in stored for receipt in result.receipts)


def _list_facts(outcome: Outcome) -> dict[str, str]:
    """Return what a reward goes by, by the name of its field."""
    facts = {"outcome.label": outcome.label}
    for place, check in enumerate(outcome.checks):
        facts[f"outcome.checks.{place} ({check.name})"] = f"passed {check.passed}, score {check.score:g}"
    return facts
