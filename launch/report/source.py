"""What a report reads: the rows of a run folder, each by its place in the files, and what was appended since the last
look.

Rows are read as plain JSON: a report of 100,000 rows must not wait for strict decoding, and the writer checked them
already.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import orjson

from gavel.judges.bindings import Binding, add_members
from gavel.launch.assembly.assemble import assemble_run
from gavel.launch.assembly.qualification import Standing, read_run_standings
from gavel.launch.config.schema import RolloutConfig, TrainConfig
from gavel.launch.report.entry import ReportEntry, make_entry
from gavel.launch.report.run_facts import describe_cost, describe_run, read_metrics
from gavel.launch.runs.child import read_run_config
from gavel.launch.runs.journal import RowKey
from gavel.launch.runs.manifest import Manifest, read_lineage, read_manifest
from gavel.models.errors import GavelError, RecordError
from gavel.models.files import is_altered, parse_line

Json = Mapping[str, Any]
_EVENT = re.compile(
    rb'\{"schema":"[^"]*","task_id":("(?:[^"\\]|\\.)*"),"rollout_index":(\d+),"attempt":\d+,"event":"(\w+)"'
)


@dataclass(slots=True)
class Tail:
    """A file that grows: ``read_lines`` yields what was appended since the last call, whole lines only."""

    path: Path
    offset: int = 0
    _inode: int = 0

    def is_renewed(self) -> bool:
        """Whether the file was written anew since the last look; it is then read from its start."""
        inode = self.path.stat().st_ino if self.path.is_file() else 0
        if inode == self._inode:
            return False
        self._inode, self.offset = inode, 0
        return True

    def read_lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield (byte offset, line); a file that is not there is empty."""
        if not self.path.is_file():
            return
        with self.path.open("rb") as file:
            file.seek(self.offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                begun, self.offset = self.offset, self.offset + len(line)
                yield begun, line


class ReportSource(Protocol):
    """What overviews, stories and the live page need of a run: ``RunSource`` and ``TrainingSource`` have it.

    ``entries`` stand at the place of their number; ``planned`` counts the rows there are to be; ``version`` grows with
    every change; ``altered`` counts lines that are not the ones that were written.
    """

    path: Path
    entries: list[ReportEntry]
    planned: int
    version: int
    altered: int

    @property
    def env(self) -> str:
        """The environment's name."""
        ...

    @property
    def env_options(self) -> Mapping[str, Any]:
        """The environment's options."""
        ...

    @property
    def reward(self) -> Mapping[str, Any]:
        """The reward policy's options."""
        ...

    def read_metrics(self) -> tuple[Mapping[str, Any], bool]:
        """Return the stored figures, and whether rows came after them."""
        ...

    def read_facts(self) -> dict[str, str]:
        """Return what the run is made of, in words."""
        ...

    def read_standings(self) -> tuple[Standing, ...]:
        """Return what is known of its judges."""
        ...

    def read_bindings(self) -> Mapping[str, Binding]:
        """Return its bindings, without touching a network."""
        ...

    def refresh(self) -> bool:
        """Read what was appended; return whether there was anything."""
        ...

    def read_row(self, place: tuple[str, int]) -> dict[str, Any]:
        """Return the row that stands at a place."""
        ...

    def read_task(self, task_id: str) -> Json:
        """Return the planned task, or nothing."""
        ...

    def list_attempts(self, entry: ReportEntry) -> list[tuple[str, int]]:
        """Return where the attempts at a row stand, oldest first."""
        ...

    def read_answers(self, entry: ReportEntry) -> list[dict[str, Any]]:
        """Return the answered judge questions of a row."""
        ...


@dataclass(slots=True)
class RunSource:
    """A run folder as a report sees it.

    ``entries`` has one entry per row, the newest attempt, at the place of its number, which never changes; ``attempts``
    the places of all attempts of a row, oldest first; ``version`` grows with every change.
    """

    path: Path
    manifest: Manifest
    config: RolloutConfig | None
    entries: list[ReportEntry] = field(default_factory=list)
    attempts: dict[RowKey, list[tuple[str, int]]] = field(default_factory=dict)
    planned: int = 0
    version: int = 0
    altered: int = 0
    _numbers: dict[RowKey, int] = field(default_factory=dict)
    _tasks: dict[str, int] = field(default_factory=dict)
    _answers: dict[RowKey, list[tuple[Path, int]]] = field(default_factory=dict)
    _tails: dict[str, Tail] = field(default_factory=dict)
    _journals: list[Tail] = field(default_factory=list)

    @classmethod
    def open_run(cls, path: Path) -> RunSource:
        """Open the run at ``path``; nothing is read before ``refresh``.

        Raises:
            RecordError: its manifest is damaged.
        """
        manifest = read_manifest(path)
        if manifest is None:
            raise RecordError("there is no run in this folder", where=str(path), found="no manifest.json")
        source = cls(path, manifest, _read_config(path))
        source._tails = {name: Tail(path / name) for name in ("inputs.jsonl", "errors.jsonl", "results.jsonl")}
        source._journals = [Tail(folder / "transcripts.jsonl") for folder in _list_lineage(path, manifest)]
        return source

    @property
    def env(self) -> str:
        """The environment's name."""
        return str(self.manifest.identity.env.get("name", ""))

    @property
    def env_options(self) -> Mapping[str, Any]:
        """The environment's options."""
        return self.manifest.identity.env

    @property
    def reward(self) -> Mapping[str, Any]:
        """The reward policy's options."""
        return self.manifest.reward

    def read_metrics(self) -> tuple[Mapping[str, Any], bool]:
        """Return what the last finished session wrote, and whether rows came after it."""
        return read_metrics(self.path)

    def read_facts(self) -> dict[str, str]:
        """Return what the run is made of, in words."""
        money = describe_cost(self.read_metrics()[0])
        return {**describe_run(self.env, self.manifest, self.config), **({"money": money} if money else {})}

    def read_standings(self) -> tuple[Standing, ...]:
        """Return what is known of the run's judges; nothing where another version wrote its config."""
        return read_run_standings(self.config, self.path) if self.config is not None else ()

    def read_bindings(self) -> Mapping[str, Binding]:
        """Return the run's bindings, without touching a network."""
        return bind_offline(self.config, with_policy=True)

    def refresh(self) -> bool:
        """Read what was appended; return whether there was anything.

        Raises:
            RecordError: a damaged line; names file and line's place.
        """
        before = (self.version, self.planned)
        self._read_inputs()
        for name in ("errors.jsonl", "results.jsonl"):
            for offset, line in self._tails[name].read_lines():
                where = f"{self.path / name} at byte {offset}"
                row, altered = parse_line(line, where)  # a changed line is shown, and counted
                self.altered += altered
                with check_row(where):
                    self._take_row(name, offset, row)
        for journal in self._journals:
            self._read_journal(journal)
        return (self.version, self.planned) != before

    def _read_inputs(self) -> None:
        tail = self._tails["inputs.jsonl"]
        if tail.is_renewed():  # a run that is extended gets a new plan
            self.planned = 0
            self._tasks.clear()
        for offset, line in tail.read_lines():
            where = f"{tail.path} at byte {offset}"
            row, _ = parse_line(line, where)
            self.planned += 1
            if row.get("task") is not None:
                with check_row(where):
                    self._tasks[row["task_id"]] = offset

    def _take_row(self, name: str, offset: int, row: dict[str, Any]) -> None:
        key = (row["task_id"], row["rollout_index"])
        if not row["task_digest"] and row["task_id"] in self._tasks:
            return  # mended since
        self.attempts.setdefault(key, []).append((name, offset))
        number = self._numbers.setdefault(key, len(self.entries))
        if number < len(self.entries) and self.entries[number].graded:
            return
        self.version += 1
        entry = make_entry(number, self.version, row, (name, offset))
        if number == len(self.entries):
            self.entries.append(entry)
        else:
            self.entries[number] = entry

    def _read_journal(self, journal: Tail) -> None:
        for offset, line in journal.read_lines():
            self.altered += bool(is_altered(line))
            head = _EVENT.match(line)
            if head is not None and head[3] == b"answer":
                self._answers.setdefault((orjson.loads(head[1]), int(head[2])), []).append((journal.path, offset))

    def read_row(self, place: tuple[str, int]) -> dict[str, Any]:
        """Return the row that stands at a place of ``attempts``."""
        return read_line(self.path / place[0], place[1])

    def read_task(self, task_id: str) -> Json:
        """Return the planned task, or nothing where it was skipped."""
        offset = self._tasks.get(task_id)
        return {} if offset is None else read_line(self.path / "inputs.jsonl", offset)["task"]

    def list_attempts(self, entry: ReportEntry) -> list[tuple[str, int]]:
        """Return where the attempts at a row stand, oldest first."""
        return self.attempts[entry.task_id, entry.rollout_index]

    def read_answers(self, entry: ReportEntry) -> list[dict[str, Any]]:
        """Return the answered judge questions of a row, in the order in which they were asked, the newest answer of
        each.
        """
        found: dict[str, dict[str, Any]] = {}
        for path, offset in self._answers.get((entry.task_id, entry.rollout_index), ()):
            body = read_line(path, offset)["body"]
            found[body["key"]] = body
        return list(found.values())


@contextmanager
def check_row(where: str) -> Iterator[None]:
    """Name the line whose fields are not those of a row; reading each strictly would take as long as grading did."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as failed:
        raise RecordError(
            "this line is no row of a run",
            where=where,
            found=f"{type(failed).__name__}: {failed}",
            remedy="a run's files are written by gavel alone; take the line out (keep a copy)",
        ) from failed


def read_line(path: Path, offset: int) -> dict[str, Any]:
    """Read the line that begins at a byte.

    Raises:
        RecordError: it is no JSON object.
    """
    with path.open("rb") as file:
        file.seek(offset)
        return parse_line(file.readline(), f"{path} at byte {offset}")[0]


def bind_offline(config: RolloutConfig | TrainConfig | None, *, with_policy: bool) -> Mapping[str, Binding]:
    """Return the bindings of a stored config, panels with their members, without touching a network; none where they
    cannot be made any more.
    """
    if config is None:
        return {}
    try:
        made = assemble_run(replace(config, assets=replace(config.assets, offline=True)), with_policy=with_policy)
        return add_members(made.bindings)
    except GavelError:
        return {}


def _read_config(path: Path) -> RolloutConfig | None:
    """Return the run's config; None where another version wrote it, so that its rows can still be looked at."""
    try:
        return read_run_config(path)
    except (GavelError, OSError):
        return None


def _list_lineage(path: Path, manifest: Manifest) -> list[Path]:
    """Return the run and its ancestors that are still there, the oldest first: a rescored run has its judge's answers
    in its parent.
    """
    folders = [folder for folder, _ in read_lineage(path, manifest)]
    # A regraded run asks anew: what its parent's judge said is not what it was graded by.
    kept = folders if manifest.kind == "rescore" else folders[:1]
    return kept[::-1]
