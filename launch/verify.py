"""``gavel verify RUN``: whether a run folder says what was written into it; nothing is changed and no model is called.

Three questions to each stored row: is each line the one that was written (its digest), is the reward what the run's policy gives the
stored outcome, and is the outcome what the environment makes of the stored transcript and the judge's stored replies? This shows
accidents and careless edits. It is no signature: who can write the folder can write digests, too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from gavel.envs.episode import EpisodeState, MemoryRecord
from gavel.envs.play import EpisodePlayer
from gavel.envs.registry import make_reward
from gavel.envs.types import Digests, Finish, Outcome, Result, RewardPolicy, ServiceNeeded, Transcript
from gavel.launch.assembly import Assembly, assemble
from gavel.launch.running.child import config_of, existing_run
from gavel.launch.running.files import is_altered
from gavel.launch.running.inputs import PlannedRow, own_messages, read_inputs
from gavel.launch.running.journal import RowKey, read_journal
from gavel.launch.running.manifest import read_manifest
from gavel.launch.running.rewards import compare_reward
from gavel.launch.running.session import say
from gavel.launch.schema import VerifyConfig
from gavel.models.codec import load
from gavel.models.errors import GavelError, RecordError, shorten
from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.files import read_document
from gavel.models.types import ChatRequest, Completion

FILES = ("inputs.jsonl", "transcripts.jsonl", "results.jsonl", "errors.jsonl")
AGREES, DISAGREES = 0, 2


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One thing that is not as it was written: ``where`` is file and line, ``row`` the row it is about, empty for none."""

    where: str
    row: str
    field: str
    found: str
    right: str

    @property
    def line(self) -> str:
        """As it is printed."""
        about = f" {self.row}:" if self.row else ""
        right = f", right is {self.right}" if self.right else ""
        return f"{self.where}:{about} {self.field}: found {self.found}{right}"


@dataclass(slots=True)
class Verification:
    """What was found: ``reread`` counts rows whose outcome was made again, ``unread`` those that it could not be, by reason."""

    disagreements: list[Disagreement] = field(default_factory=list)
    lines: int = 0
    undigested: int = 0
    rewarded: int = 0
    reread: int = 0
    unread: Counter[str] = field(default_factory=Counter)


class _NoModel:
    """Stands where a model would be asked: verifying calls none."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def complete(self, request: ChatRequest) -> Completion:  # noqa: ARG002
        raise ModelFailure(FailureKind.CANCELLED, f"what {self.name} replied is not stored under this version's rubric")


def run(config: VerifyConfig, console: Console) -> int:
    """Run the verb; see ``gavel verify --help``. Returns 0 where everything agrees, else 2."""
    path = existing_run(config.run.dir, "verify")
    found = verify_run(path)
    for one in found.disagreements:
        say(console, one.line)
    say(console, f"{found.lines} lines; made again: {found.rewarded} rewards, {found.reread} outcomes from stored replies")
    if found.undigested:
        say(
            console,
            f"{found.undigested} lines carry no digest: an older version wrote them",
        )
    for reason, count in found.unread.most_common():
        say(console, f"{count} outcomes could not be made again: {reason}")
    if found.disagreements:
        say(console, f"{len(found.disagreements)} disagreements in {path}", style="bold")
        return DISAGREES
    say(console, "everything agrees; this is no signature: who can write the folder can write digests, too")
    return AGREES


def verify_run(path: Path) -> Verification:
    """Look at every stored line of a run.

    Raises:
        GavelError: the run's config or manifest cannot be read.
    """
    found = Verification()
    results = [item for item in _read_results(path, found) if item[1] is not None]
    manifest = read_manifest(path)
    assert manifest is not None
    reward = make_reward(manifest.reward)
    for where, result in results:
        assert result is not None
        found.rewarded += 1
        found.disagreements += [
            Disagreement(where, name_row(result), name, stored, right) for name, stored, right in compare_reward(result, reward)
        ]
    asyncio.run(_reread(path, [(where, result) for where, result in results if result is not None], reward, found))
    return found


def _read_results(path: Path, found: Verification) -> Iterator[tuple[str, Result | None]]:
    """Check each line of each file; yield the graded rows with their places."""
    for name in FILES:
        file, digested = path / name, False
        if not file.is_file():
            continue
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    break  # torn: the next start moves it away
                where = f"{file}:{number}"
                altered = is_altered(line)
                found.lines += 1
                if altered is None and name != "inputs.jsonl":  # whose tasks have digests of their own
                    found.undigested += not digested
                    if digested:
                        found.disagreements.append(Disagreement(where, "", "line_digest", "none", "one, as the lines before"))
                elif altered is not None:
                    digested = True
                if altered:
                    found.disagreements.append(Disagreement(where, _name_line(line), "line_digest", "another line's", ""))
                if name == "results.jsonl":
                    yield where, _read_result(line, where, found, altered=bool(altered))


def _name_line(line: bytes) -> str:
    head = line[:300].decode("utf-8", "replace")
    return shorten(head.partition('"task_id":')[2].partition(",")[0].strip('"'), 60)


def _read_result(line: bytes, where: str, found: Verification, *, altered: bool) -> Result | None:
    try:
        document = read_document(line, where) if not altered else _read_altered(line)
        return load(Result, document, where=where)
    except RecordError as failed:
        found.disagreements.append(Disagreement(where, "", failed.field or "line", failed.found or failed.problem, failed.allowed))
        return None


def _read_altered(line: bytes) -> dict[str, object]:
    import orjson

    from gavel.models.files import LINE_DIGEST

    document: dict[str, object] = orjson.loads(line)
    document.pop(LINE_DIGEST, None)
    return document


def name_row(result: Result) -> str:
    """Return a row as it is named to a user."""
    return f"{result.task_id} (rollout {result.rollout_index})"


async def _reread(path: Path, results: Sequence[tuple[str, Result]], reward: RewardPolicy, found: Verification) -> None:
    """Make each outcome again from its stored transcript and the judge's stored replies."""
    try:
        assembly, rows = _assemble(path)
    except (GavelError, OSError) as failed:
        found.unread[f"the run cannot be put together here: {str(failed).splitlines()[0]}"] += len(results)
        return
    states = read_states(path, list(rows.values()), found)
    player = EpisodePlayer(assembly.environment, reward, Digests("", {}))
    for where, result in results:
        key = (result.task_id, result.rollout_index)
        row, state = rows.get(key), states.get(key)
        if row is None:
            found.disagreements.append(Disagreement(where, name_row(result), "task_id", "a row that was never planned", ""))
        elif row.task.digest != result.task_digest:
            found.disagreements.append(
                Disagreement(where, name_row(result), "task_digest", result.task_digest, f"{row.task.digest}, of inputs.jsonl")
            )
        elif state is None or state.messages is None:
            found.unread["its transcript stands in the run that this one was made from"] += 1
        else:
            found.disagreements += await _compare(where, result, row, state, player, found)


async def _compare(
    where: str, result: Result, row: PlannedRow, state: EpisodeState, player: EpisodePlayer, found: Verification
) -> list[Disagreement]:
    messages = state.messages or ()
    if result.transcript.messages[: len(messages)] != messages:
        return [Disagreement(where, name_row(result), "transcript", "other messages", "those of transcripts.jsonl")]
    try:
        said = await player.take_step(row.task, Transcript(messages), MemoryRecord(state))
    except ServiceNeeded as needed:
        found.unread[f"it needs the service {needed}"] += 1
        return []
    if not isinstance(said, Finish):
        return [Disagreement(where, name_row(result), "transcript", "one that goes on", "a finished one")]
    if said.outcome.failure is not None:
        found.unread[said.outcome.failure.reason] += 1
        return []
    found.reread += 1
    stored, made = _facts(result.outcome), _facts(said.outcome)
    return [
        Disagreement(where, name_row(result), name, stored.get(name, "none"), right)
        for name, right in made.items()
        if stored.get(name) != right
    ]


def _facts(outcome: Outcome) -> dict[str, str]:
    """Return what a reward goes by, by the name of its field."""
    facts = {"outcome.label": outcome.label}
    for place, check in enumerate(outcome.checks):
        facts[f"outcome.checks.{place} ({check.name})"] = f"passed {check.passed}, score {check.score:g}"
    return facts


def _assemble(path: Path) -> tuple[Assembly, Mapping[RowKey, PlannedRow]]:
    config = config_of(path)
    assembly = assemble(replace(config, dry_run=True, assets=replace(config.assets, offline=True)), with_policy=True)
    assembly.models.start({name: _NoModel(name) for name in assembly.services})
    parse = assembly.environment.parse_target
    rows = [replace(row, task=replace(row.task, target=parse(row.task.target))) for row in read_inputs(path)]
    return assembly, {row.key: row for row in rows}


def read_states(path: Path, rows: Sequence[PlannedRow], found: Verification) -> Mapping[RowKey, EpisodeState]:
    """Return what the journal says of each row; nothing where one of its lines was changed, which is said already."""
    try:
        return read_journal(path / "transcripts.jsonl", own_messages(list(rows)))
    except RecordError as failed:
        found.unread[f"transcripts.jsonl cannot be read: {failed.problem}"] += 1
        return {}
