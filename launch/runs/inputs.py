"""``inputs.jsonl``: every (task, rollout) planned for a run, in order; the first line of a task carries it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import orjson

from gavel.envs.types import Task
from gavel.launch.runs.files import Tell, read_lines, refuse_fault
from gavel.launch.runs.journal import RowKey
from gavel.launch.runs.lease import RunFolderError
from gavel.models.codec import dump, load, record
from gavel.models.errors import RecordError
from gavel.models.types import Message


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """One (task, rollout) to be done; ``task_index`` is the task's place in its file, from 0."""

    task_index: int
    rollout_index: int
    task: Task
    task_digest: str

    @property
    def key(self) -> RowKey:
        """The row's identity."""
        return (self.task.task_id, self.rollout_index)


@record
class InputLine:
    """A planned row as stored."""

    SCHEMA: ClassVar[str] = "gavel.input/1"

    task_index: int
    rollout_index: int
    task_id: str
    task_digest: str
    task: Any = None


def read_inputs(path: Path, tell: Tell = refuse_fault) -> list[PlannedRow]:
    """Read the rows planned for the run at ``path``, in order; targets are plain JSON until the environment parses
    them.

    ``tell`` is told of each damaged line, with file, line and field; it is then left out.
    """
    tasks: dict[str, tuple[Task, str]] = {}
    rows = []
    for number, raw in read_lines(path / "inputs.jsonl", tell):
        where = f"{path / 'inputs.jsonl'}:{number}"
        try:
            rows.append(_read_row(raw, tasks, where))
        except RecordError as fault:
            tell(fault)
    return rows


def _read_row(raw: Mapping[str, Any], tasks: dict[str, tuple[Task, str]], where: str) -> PlannedRow:
    line = load(InputLine, raw, where=where, parsed=True)
    if isinstance(line.task, dict):
        task = load(Task, line.task, where=where, parsed=True)
        tasks[line.task_id] = task, task.digest
    if line.task_id not in tasks:
        raise RecordError("no line before carries this task", where=where, field="task", found=line.task_id)
    task, made = tasks[line.task_id]
    if made != line.task_digest:
        raise RecordError(
            f"task {line.task_id} was changed after it was planned",
            where=where,
            field="task_digest",
            found=line.task_digest,
            allowed=f"{made}, which its text gives",
            remedy="put the file back as it was",
        )
    return PlannedRow(line.task_index, line.rollout_index, task, line.task_digest)


def merge_inputs(old: Sequence[PlannedRow], new: Sequence[PlannedRow], where: str) -> bytes | None:
    """Return the file that plans ``new`` beside ``old``, or None where nothing is added.

    A task that was planned keeps its place, wherever it stands in its file now.

    Raises:
        RunFolderError: a task of the same id has changed.
    """
    known = {row.key for row in old}
    first = {row.task.task_id: row for row in reversed(old)}
    for row in new:
        before = first.get(row.task.task_id)
        if before is not None and before.task_digest != row.task_digest:
            raise RunFolderError(
                "this task has changed since the run was made",
                where=where,
                field=row.task.task_id,
                found=row.task_digest,
                allowed=before.task_digest,
                remedy="name a new folder with run.dir=…",
            )
    added = [row for row in new if row.key not in known]
    if not added:
        return None
    places = {row.task.task_id: row.task_index for row in (*added, *old)}
    rows = sorted((*old, *added), key=lambda row: (places[row.task.task_id], row.task.task_id, row.rollout_index))
    return b"".join(_format_lines(rows, places))


def _format_lines(rows: Iterable[PlannedRow], places: dict[str, int]) -> Iterable[bytes]:
    carried: set[str] = set()
    for row in rows:
        task = None if row.task.task_id in carried else orjson.Fragment(dump(row.task))
        carried.add(row.task.task_id)
        line = InputLine(places[row.task.task_id], row.rollout_index, row.task.task_id, row.task_digest, task)
        yield dump(line) + b"\n"


def read_own_messages(rows: Sequence[PlannedRow]) -> dict[str, tuple[Message, ...]]:
    """Return each task's own messages by its id."""
    return {row.task.task_id: row.task.messages for row in rows}
