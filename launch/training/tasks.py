"""What can be wrong with the tasks of a training run: their file, its manifest, their bindings, and prompts that GRPO
would merge.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gavel.envs.hygiene import compute_file_sha256
from gavel.envs.registry import can_generate
from gavel.envs.tasks import PlannedTask, read_tasks
from gavel.judges.bindings import check_verifiers
from gavel.launch.assembly.assemble import Assembly
from gavel.launch.config.schema import TasksConfig, TrainConfig
from gavel.launch.config.task_paths import resolve_task_path
from gavel.launch.training.trainer import UnnamedError
from gavel.models.codec import encode_canonical, to_plain
from gavel.models.errors import ConfigError, GavelError, InputError, shorten_value
from gavel.models.files import read_object

PACKAGE = "pkg:"
_SHOWN = 3


def list_task_findings(config: TrainConfig, assembly: Assembly | None, prefix: str = "") -> Iterator[GavelError]:
    """Yield what is wrong with both task files of an environment, whose keys begin with ``prefix``; bindings are
    looked at where the parts could be assembled.
    """
    if not config.tasks.path:
        yield UnnamedError(
            "no tasks are named",
            field=f"{prefix}tasks.path",
            allowed="a tasks.jsonl, as `gavel prepare` writes it",
            remedy=f"set {prefix}tasks.path=…",
        )
        return
    for key, tasks in (("tasks", config.tasks), ("validation", config.validation)):
        if tasks.path:
            yield from _check_file(f"{prefix}{key}", tasks, config, assembly)


def has_judged_task(config: TrainConfig, assembly: Assembly) -> bool:
    """Tell whether any task of a run can ask a judge; where it cannot be told, it can."""
    asks = assembly.environment.info.asks_judge
    paths = [(resolve_task_path(tasks.path), tasks.limit) for tasks in (config.tasks, config.validation) if tasks.path]
    try:
        return any(
            asks(row.task) for path, limit in paths for row in read_tasks(path, assembly.environment, limit=limit).tasks
        )
    except GavelError:
        return True  # what is wrong with the file is a finding of its own


def _check_file(key: str, tasks: TasksConfig, config: TrainConfig, assembly: Assembly | None) -> Iterator[GavelError]:
    path = resolve_task_path(str(tasks.path))
    if not path.is_file():
        yield ConfigError(
            "there is no such file",
            field=f"{key}.path",
            found=str(path),
            remedy=f"make it: {_make_prepare_command(path, config)}",
        )
        return
    yield from _check_manifest(key, path, config, required=key.endswith("tasks") and config.hygiene_required)
    if assembly is None:
        return
    try:
        file = read_tasks(path, assembly.environment, limit=tasks.limit)
    except GavelError as failed:
        yield failed
        return
    yield from (row.error for row in file.bad[:_SHOWN])
    if len(file.bad) > _SHOWN:
        yield InputError(f"{len(file.bad) - _SHOWN} more rows are no valid tasks", where=str(path))
    try:
        check_verifiers(
            assembly.bindings, {row.task.verifier for row in file.tasks}, assembly.environment.info.also_binds
        )
    except GavelError as failed:
        yield failed
    yield from _find_merged(key, path, file.tasks)


def _make_prepare_command(path: Path, config: TrainConfig, source: object = None) -> str:
    """Return the command that makes a task file; ``source`` is the file it was made of, if that is known."""
    words = [f"env={config.env.get('name')}"]
    if not can_generate(config.env):
        words += [f"source.path={source or 'SOURCE.jsonl'}"]
    if config.hygiene_required:
        words.append("source.protected=[BENCHMARK.jsonl]")
    if path.name == "validation.jsonl":
        words.append("source.validation_fraction=0.1")
    return shlex.join(["gavel", "prepare", *words, f"out={path.parent}"])


def _check_manifest(key: str, path: Path, config: TrainConfig, *, required: bool) -> Iterator[GavelError]:
    """Compare the file with the manifest beside it, and ask for the result of the check against protected sets. A
    manifest says nothing of a file it does not list."""
    manifest = read_object(path.parent / "manifest.json")
    files, origin = manifest.get("files"), manifest.get("source")
    again = _make_prepare_command(path, config, origin.get("path") if isinstance(origin, dict) else None)
    stated = files.get(path.name) if isinstance(files, dict) else None
    if isinstance(stated, dict) and stated.get("sha256") != (actual := compute_file_sha256(path)):
        yield InputError(
            "this file is not the one its manifest describes",
            where=str(path),
            field=f"{key}.path",
            found=actual,
            allowed=str(stated.get("sha256")),
            remedy=f"prepare it again: {again}",
        )
    if required and not (isinstance(stated, dict) and _is_compared(manifest.get("hygiene"))):
        yield InputError(
            "these tasks were never compared with a protected set",
            where=str(path),
            field="hygiene_required",
            remedy=f"{again}, or hygiene_required=false (it is recorded)",
        )


def _is_compared(hygiene: Any) -> bool:
    """Whether a manifest's result names at least one protected file, and its digest."""
    protected = hygiene.get("protected") if isinstance(hygiene, dict) else None
    return (
        bool(protected)
        and isinstance(protected, list)
        and all(isinstance(one, dict) and one.get("sha256") for one in protected)
    )


def _find_merged(key: str, path: Path, tasks: Sequence[PlannedTask]) -> Iterator[GavelError]:
    """Find prompts that stand in the file with different targets: GRPO tells its groups apart by the prompt alone."""
    seen: dict[bytes, tuple[str, bytes]] = {}
    clashes = []
    for row in tasks:
        task = row.task
        prompt, target = (
            encode_canonical(to_plain(task.messages)),
            encode_canonical(to_plain([task.verifier, task.target])),
        )
        first = seen.setdefault(prompt, (task.task_id, target))
        if first[1] != target:
            clashes.append(f"{first[0]} and {task.task_id}")
    if clashes:
        yield InputError(
            f"{len(clashes)} tasks have the prompt of another one and a different target; GRPO would make one "
            f"group of them",
            where=str(path),
            field=f"{key}.path",
            found=shorten_value("; ".join(clashes[:_SHOWN])),
            remedy="drop or reword one of each pair",
        )
