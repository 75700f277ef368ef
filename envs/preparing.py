"""Adapting a source into a folder: ``tasks.jsonl``, ``validation.jsonl``, ``verifiers.json`` and a manifest of what was
done.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from gavel.envs.hygiene import Protected, compute_file_sha256, compute_question_share
from gavel.envs.registry import SOURCES, choose_entry, load_source
from gavel.envs.source_files import Origin, SourceConfig, check_source, find_local_file
from gavel.envs.sources import NOT_SAID, SLICES, Licence, Sliced, SourceAdapter, find_licence
from gavel.envs.task_manifest import SkippedRow, SortedTasks, count_domains, make_contents
from gavel.envs.tasks import BadRow, Targets, TaskReader
from gavel.envs.types import EnvironmentInfo, Task, TaskError
from gavel.models.codec import decode, record
from gavel.models.errors import ConfigError, InputError

MOST_SLICES = 100
"""Values that a field may have for figures to be sliced by it."""
SHOWN = 20
"""Bad rows shown in the error; all are in its ``errors``."""

Warn = Callable[[str], None]
Form = Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
"""From the files of a prepared folder by name, the manifest last, to those that are written."""


class PrepareError(InputError):
    """Bad rows: nothing was written. ``errors`` holds all of them."""

    def __init__(self, path: Path, bad: Sequence[BadRow]) -> None:
        self.errors: tuple[TaskError, ...] = tuple(row.error for row in bad)
        shown = "\n".join(str(error) for error in self.errors[:SHOWN])
        more = f"\n… and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
        problem = f"{len(bad)} bad {'row' if len(bad) == 1 else 'rows'}, nothing was written:\n{shown}{more}"
        super().__init__(problem, where=str(path), remedy="mend or remove these rows and prepare again")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_error, (self.problem, self.where, self.remedy, self.errors)


def _rebuild_error(problem: str, where: str, remedy: str, errors: tuple[TaskError, ...]) -> PrepareError:
    made = PrepareError.__new__(PrepareError)
    InputError.__init__(made, problem, where=where, remedy=remedy)
    made.errors = errors
    return made


@record
class PrepareReport:
    """What was prepared: files written (none in a dry run), rows by fate, warnings given."""

    out: str
    files: tuple[str, ...]
    rows: int
    train: int
    validation: int
    dropped: Mapping[str, tuple[str, ...]]
    domains: Mapping[str, int]
    warnings: tuple[str, ...]
    skipped: int = 0


def prepare_tasks(
    source: Mapping[str, Any],
    out: str | Path,
    *,
    profiles: Mapping[str, str],
    warn: Warn,
    dry_run: bool = False,
    env: str | None = None,
    form: Form = lambda files: files,
    targets: Targets | None = None,
) -> PrepareReport:
    """Adapt a source into the folder ``out``.

    Args:
        source: the fields of ``SourceConfig``.
        out: the folder; files of the same names are replaced, each only once it is complete.
        profiles: the grading profile of each binding, for ``verifiers.json``.
        warn: told each warning before anything is written.
        dry_run: read and check all, write nothing.
        env: the environment, for a source whose rows are of any.
        targets: reads each row's target once more as a run would; None: what the adapter made of it is taken.
        form: adds files to those that are written, such as the tasks in somebody else's form.

    Raises:
        ConfigError: a key of the source does not fit.
        PrepareError: bad rows; nothing is written.
        InputError: a file cannot be read or written.
    """
    config = decode(SourceConfig, dict(source), prefix="source", error=ConfigError)
    check_source(config)
    adapter = load_source(config.name, env if choose_entry("source", config.name, SOURCES).env is None else None)
    path = find_local_file(config)
    protected = Protected(config.protected)
    tasks, skipped = _adapt_rows(path, Sliced(adapter, config.slice_fields), config.binding, targets)
    _check_slices(tasks, config.slice_fields)
    fates = replace(_sort_tasks(tasks, protected, config.validation_fraction), skipped=skipped)
    origin = Origin(str(path), compute_file_sha256(path), config.dataset, config.revision)
    licence = find_licence(adapter, config.dataset, [task.task_id for task in tasks])
    made = form(make_contents(config, adapter, origin, fates, protected, profiles, licence))
    warnings = tuple(_list_warnings(licence, fates, config))
    for text in warnings:
        warn(text)
    files = () if dry_run else write_files(Path(out), made)
    return PrepareReport(
        str(out),
        files,
        len(tasks) + len(skipped),
        len(fates.train),
        len(fates.validation),
        fates.dropped,
        count_domains(tasks),
        warnings,
        len(skipped),
    )


@record
class _AnyTarget:
    """Adapted rows come with their targets parsed."""

    name: str
    info: EnvironmentInfo = field(default_factory=EnvironmentInfo)

    def parse_target(self, raw: Any) -> Any:
        return raw


def _adapt_rows(
    path: Path, adapter: SourceAdapter, binding: str | None, targets: Targets | None
) -> tuple[list[Task], tuple[SkippedRow, ...]]:
    reader = TaskReader(path, targets or _AnyTarget(adapter.env), source=adapter, binding=binding)
    tasks: list[Task] = []
    bad: list[BadRow] = []
    for item in reader:
        if isinstance(item, BadRow):
            bad.append(item)
        else:
            tasks.append(item.task)
    if bad and not adapter.skips_bad_rows:
        raise PrepareError(path, bad)
    return tasks, tuple(SkippedRow(row.line, row.task_id, str(row.error.kind), str(row.error)) for row in bad)


def _check_slices(tasks: Sequence[Task], names: Sequence[str]) -> None:
    """Refuse a field that slices nothing: one that no row has, or with nearly as many values as rows.

    Raises:
        ConfigError: names the key.
    """
    for name in names:
        values = {task.metadata[SLICES][name] for task in tasks}
        if values == {NOT_SAID}:
            raise ConfigError(
                "no row has this field", field="source.slice_fields", found=name, remedy="name a field of the rows"
            )
        if len(values) > MOST_SLICES:
            raise ConfigError(
                "this field has too many values to slice by",
                field="source.slice_fields",
                found=f"{name}: {len(values)} values",
                allowed=f"at most {MOST_SLICES}",
                remedy="name a field with few values, such as a topic or a level",
            )


def _find_question(task: Task) -> str:
    """Return what hygiene and the split go by: the target's question, else the last user message, else (nobody spoke
    yet) the id.
    """
    found = getattr(task.target, "question", None)
    asked = [message.content for message in task.messages if message.role == "user"]
    return found if isinstance(found, str) else asked[-1] if asked else task.task_id


def _sort_tasks(tasks: Iterable[Task], protected: Protected, fraction: float) -> SortedTasks:
    train: list[Task] = []
    validation: list[Task] = []
    dropped: dict[str, list[str]] = {}
    for task in tasks:
        question = _find_question(task)
        if (how := protected.match_question(question)) is not None:
            dropped.setdefault(how, []).append(task.task_id)
        else:
            (validation if compute_question_share(question) < fraction else train).append(task)
    return SortedTasks(tuple(train), tuple(validation), {how: tuple(ids) for how, ids in dropped.items()})


def _list_warnings(licence: Licence, tasks: SortedTasks, config: SourceConfig) -> Iterable[str]:
    if licence.warning:
        yield f"licence: {licence.warning}"
    if not config.protected:
        yield (
            "hygiene: no protected files (questions you evaluate on, which training must not see) were given; tasks "
            "to train on need "
            "them: set source.protected=[FILE, …] (docs/prepare.md)"
        )
    if tasks.skipped:
        kinds = ", ".join(
            f"{kind} {count}" for kind, count in sorted(Counter(row.kind for row in tasks.skipped).items())
        )
        first = tasks.skipped[0].error
        yield (
            f"skipped: {len(tasks.skipped)} rows are no valid tasks ({kinds}); skipped.jsonl says why; the "
            f"first:\n{first}"
        )
    if conflicting := [task.task_id for task in (*tasks.train, *tasks.validation) if "conflicts" in task.metadata]:
        shown = ", ".join(conflicting[:3])
        yield (
            f"conflicts: {len(conflicting)} tasks want what no reply can do at once (metadata.conflicts), such "
            f"as {shown}"
        )
    if listed := sum("answers_listed_in_a_text" in task.metadata for task in (*tasks.train, *tasks.validation)):
        yield (
            f"answers: {listed} of the rows have a list that is written in a text, as the answer or in the aliases; "
            f"it is read as "
            'several accepted answers; where the list itself is the answer, write it in a list: "answer": ["[…]"] '
            "(docs/prepare.md)"
        )
    if kept := sum(int(task.metadata.get("misalignment_not_flipped", 0)) for task in (*tasks.train, *tasks.validation)):
        yield (
            f"misalignment: {kept} instructions are marked as misalignment checks and are not the user's (source is "
            f"not 'user'); they "
            "are graded as they stand, pass and fail do not change places (metadata.misalignment_not_flipped)"
        )
    if not tasks.train:
        yield "every row was dropped or went into validation; tasks.jsonl will be empty"


def write_files(out: Path, files: Mapping[str, bytes]) -> tuple[str, ...]:
    """Write all files beside their places, then move them there: a full disk leaves what was there before.

    Raises:
        InputError: the folder cannot be written.
    """
    parts = {name: out / f"{name}.part" for name in files}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            _write_synced(parts[name], data)
        return tuple(str(part.replace(out / name)) for name, part in parts.items())
    except OSError as failed:
        for part in parts.values():
            with suppress(OSError):
                part.unlink(missing_ok=True)
        raise InputError(
            "this folder cannot be written",
            where=str(out),
            found=failed.strerror or str(failed),
            remedy="free space or choose another out=…",
        ) from None


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
