"""Task files: our own (``gavel.task/1``) and any source's, read row by row; a bad row is reported and the others are
kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

from gavel.envs.registry import list_sources, load_source
from gavel.envs.rows import read_rows
from gavel.envs.sources import SourceAdapter
from gavel.envs.tables import Line
from gavel.envs.types import Environment, HasInfo, Task, TaskError
from gavel.models.codec import find_non_finite, load, record, to_plain
from gavel.models.errors import ConfigError, InputError, shorten_value
from gavel.models.types import Message

_HEAD = 20
"""Rows looked at to recognise the format."""


class Targets(HasInfo, Protocol):
    """What reading needs of an environment."""

    @property
    def name(self) -> str:
        """The environment's name."""
        ...

    def parse_target(self, raw: Mapping[str, Any]) -> Any:
        """Read a target; raises ``TaskError``."""
        ...


@record
class PlannedTask:
    """A good row: its task with the target parsed, and its line (Parquet: row) from 1."""

    task: Task
    line: int


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is skipped. ``task_id`` is the row's own, or ``line:<n>`` where it has none or another row has it."""

    line: int
    task_id: str
    error: TaskError


@dataclass(frozen=True, slots=True)
class TaskFile:
    """Good and bad rows in file order; ``source`` names the adapter, None for a file of ours."""

    path: Path
    source: str | None
    tasks: tuple[PlannedTask, ...]
    bad: tuple[BadRow, ...]


def read_tasks(
    path: str | Path,
    environment: Environment | Targets,
    *,
    source: str | None = None,
    binding: str | None = None,
    limit: int | None = None,
) -> TaskFile:
    """Read a task file, or a source's file adapted on the fly.

    Args:
        path: ``.jsonl`` or ``.parquet``.
        environment: whose tasks these must be; parses the targets.
        source: the adapter's name; None recognises the format by the first rows.
        binding: what judges adapted rows; None takes the environment's ``binding``, or else the adapter's.
        limit: how many rows to take, bad ones included; None takes all.

    Raises:
        InputError: the file is missing, empty, no text file, or of no known format.
        ConfigError: a limit below 1, or an unknown source.
    """
    if limit is not None and limit < 1:
        raise ConfigError(
            "must be positive", field="tasks.limit", found=str(limit), allowed="at least 1, or null for all rows"
        )
    reader = TaskReader(Path(path), environment, source=source, binding=binding)
    tasks: list[PlannedTask] = []
    bad: list[BadRow] = []
    for item in islice(reader, limit):
        if isinstance(item, PlannedTask):
            tasks.append(item)
        else:
            bad.append(item)
    return TaskFile(Path(path), reader.source, tuple(tasks), tuple(bad))


class TaskReader(Iterable["PlannedTask | BadRow"]):
    """Streams a task file: one pass, memory for the ids only. ``source`` is known from the first row on."""

    def __init__(
        self,
        path: Path,
        environment: Environment | Targets,
        *,
        source: str | SourceAdapter | None = None,
        binding: str | None = None,
    ) -> None:
        self._path, self._environment = path, environment
        self._adapter = load_source(source, environment.name) if isinstance(source, str) else source
        self._ours: bool | None = None if source is None else False
        self._binding = binding or environment.info.binding
        self._lines: dict[str, int] = {}

    @property
    def source(self) -> str | None:
        """The adapter's name, None for a file of ours."""
        return self._adapter.name if self._adapter else None

    def __iter__(self) -> Iterator[PlannedTask | BadRow]:
        self._lines.clear()
        rows = read_rows(self._path)
        head = list(islice(rows, _HEAD))
        if self._ours is None:
            self._recognise_format([line.row for line in head if line.error is None])
        for line in chain(head, rows):
            yield self._read_planned(line)

    def _read_planned(self, line: Line) -> PlannedTask | BadRow:
        where = f"{self._path}:{line.number}"
        if line.error is not None:
            return BadRow(line.number, f"line:{line.number}", line.error)
        try:
            task = self._read_task(line, where)
        except TaskError as error:
            return BadRow(line.number, self._choose_free_id(line), error.copy_with(where=error.where or where))
        if (first := self._lines.setdefault(task.task_id, line.number)) != line.number:
            twice = TaskError(
                f"this task_id stands on lines {first} and {line.number}",
                where=where,
                field="task_id" if self._ours else "id",
                found=task.task_id,
                allowed="each id once",
                remedy=f"remove or rename one of the two rows (line {first} is kept)",
            )
            return BadRow(line.number, f"line:{line.number}", twice)
        return PlannedTask(task, line.number)

    def _read_task(self, line: Line, where: str) -> Task:
        return _make_task(line.row, self._environment, self._adapter, self._binding, where)

    def _recognise_format(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Settle the format by the first row that shows one; a bad row may come before it."""
        adapters = list_sources(self._environment.name)
        for row in rows:
            self._ours = str(row.get("schema", "")).startswith("gavel.")
            self._adapter = (
                None if self._ours else next((adapter for adapter in adapters if adapter.recognises(row)), None)
            )
            if self._ours or self._adapter is not None:
                return
        if rows:
            raise InputError(
                f"these rows are of no format that the environment {self._environment.name} can read",
                where=str(self._path),
                found=f"the fields {', '.join(sorted(rows[0])) or '(none)'}",
                allowed=f"schema {Task.SCHEMA}, or the source "
                f"{' or '.join(adapter.name for adapter in adapters) or '(none)'}",
                remedy="choose the environment of these tasks with env=…, or name the source",
            )

    def _choose_free_id(self, line: Line) -> str:
        """Return the bad row's own id, unless another row has it (a row of errors must not look like a good one's)."""
        found = line.row.get("task_id" if self._ours else "id")
        if isinstance(found, bool) or not isinstance(found, str | int) or not str(found).strip():
            return f"line:{line.number}"
        return str(found) if self._lines.setdefault(str(found), line.number) == line.number else f"line:{line.number}"


def read_task(row: Mapping[str, Any], environment: Environment | Targets, adapters: Sequence[SourceAdapter]) -> Task:
    """Read one row that comes without a file: ours, or a source's that one of ``adapters`` recognises.

    Raises:
        TaskError: names the field.
    """
    if str(row.get("schema", "")).startswith("gavel."):
        return _make_task(row, environment, None, None, "")
    adapter = next((adapter for adapter in adapters if adapter.recognises(row)), None)
    if adapter is None:
        raise TaskError(
            f"this task is of no format that the environment {environment.name} can read",
            field="schema",
            found=shorten_value(f"the fields {', '.join(sorted(map(str, row))) or '(none)'}"),
            allowed=f"schema {Task.SCHEMA}, or a row of the source "
            f"{' or '.join(adapter.name for adapter in adapters) or '(none)'}",
        )
    return _make_task(row, environment, adapter, environment.info.binding, "")


def _make_task(
    row: Mapping[str, Any],
    environment: Environment | Targets,
    adapter: SourceAdapter | None,
    binding: str | None,
    where: str,
) -> Task:
    if adapter is None:
        task = _read_own(row, environment, where)
    else:
        task = adapter.adapt(row, binding or adapter.binding)
        task = replace(task, target=environment.parse_target(task.target))
    if (bad := find_non_finite(task.metadata)) is not None:
        raise TaskError(
            "this number is not finite", field=f"metadata.{bad.path}", found=str(bad.value), allowed="a finite number"
        )
    return task if task.task_id else replace(task, task_id=task.digest)


def _read_own(row: Mapping[str, Any], environment: Environment | Targets, where: str) -> Task:
    task = load(Task, row, where=where, error=TaskError)
    if task.env != environment.name:
        raise TaskError(
            "this task is another environment's",
            field="env",
            found=task.env,
            allowed=environment.name,
            remedy=f"choose env={task.env}",
        )
    if not task.task_id.strip():
        raise TaskError("this id is blank", field="task_id", found=repr(task.task_id), allowed="a text")
    if "/" not in task.verifier.strip("/"):
        raise TaskError(
            "this names no verifier", field="verifier", found=task.verifier, allowed="<target format>/<binding>"
        )
    _check_messages(task.messages, needs_user=not environment.info.speaks_first)
    if not isinstance(task.target, Mapping):
        raise TaskError("the target is not an object", field="target", found=str(task.target), allowed="an object")
    return replace(task, target=environment.parse_target(task.target))


def _check_messages(messages: Sequence[Message], *, needs_user: bool) -> None:
    """Refuse what is no request: a task may not bring the words that are to be graded."""
    if not messages and needs_user:  # where the environment speaks first, a policy may be without instructions
        raise TaskError("there are no messages", field="messages", allowed="at least one message")
    for place, message in enumerate(messages):
        for name in ("reply", "receipts"):
            if getattr(message, name):
                raise TaskError(
                    "a task may not bring a model's reply",
                    field=f"messages.{place}.{name}",
                    found="(a reply or its receipts)",
                    allowed="role and content",
                    remedy="remove it: the policy is asked",
                )
    roles = [message.role for message in messages]
    if (needs_user and "user" not in roles) or roles[-1:] == ["assistant"]:
        raise TaskError(
            "the policy has nothing to reply to",
            field="messages",
            found=f"roles {', '.join(roles)}",
            allowed="a user's message, and none of the assistant's at the end",
        )


def dump_task(task: Task) -> dict[str, Any]:
    """Return a task as plain JSON with its schema, as it stands in a file of ours."""
    return {"schema": Task.SCHEMA, **to_plain(task)}


__all__ = [
    "BadRow",
    "PlannedTask",
    "SourceAdapter",
    "Targets",
    "TaskFile",
    "TaskReader",
    "dump_task",
    "read_task",
    "read_tasks",
]
