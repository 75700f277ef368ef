"""``gavel merge``: the shards of one run, put together into the run folder it would have been in one piece."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from gavel.envs.registry import make_reward
from gavel.envs.types import Result
from gavel.launch.assembly.assemble import assemble_run
from gavel.launch.config.console import print_line
from gavel.launch.config.schema import MergeConfig, RunConfig
from gavel.launch.config.stored import to_yaml
from gavel.launch.rollout.session import INCOMPLETE, WHOLE, compute_config_digest, describe_left, write_report
from gavel.launch.rollout.tally import RunTally, make_closing_table
from gavel.launch.runs.accounting import list_prices
from gavel.launch.runs.child import find_existing_run, read_run_config
from gavel.launch.runs.files import read_document, read_lines, read_places
from gavel.launch.runs.folder import RunFolder
from gavel.launch.runs.inputs import PlannedRow, read_inputs
from gavel.launch.runs.journal import RowKey
from gavel.launch.runs.lease import FolderLock, RunFolderError
from gavel.launch.runs.manifest import RunHead, check_free, read_manifest
from gavel.launch.runs.merge_checks import MergePart, check_rows, check_same_run, check_shards, check_whole
from gavel.launch.runs.origin import is_written_here
from gavel.launch.runs.shards import read_shard
from gavel.models.codec import load, to_json
from gavel.models.errors import ConfigError


def run(config: MergeConfig, console: Console) -> int:
    """Run the verb; see ``gavel merge --help``. Returns 0, or 3 where rows or shards are missing."""
    if not config.runs:
        raise ConfigError(
            "no runs are named", field="runs", remedy="name them: gavel merge runs/part-1 runs/part-2 into=runs/whole"
        )
    if not config.into:
        raise ConfigError("no folder is named for the whole run", field="into", remedy="set into=runs/NAME")
    target = Path(config.into).expanduser()
    target = target.resolve() if target.is_symlink() else target
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RunFolderError(
            "this place is taken",
            where=str(target),
            field="into",
            allowed="a new or an empty folder",
            remedy="name another with into=…",
        )
    _check_named_once(config.runs)
    with ExitStack() as held:
        parts = [_read_part(find_existing_run(name, "merge"), held) for name in config.runs]
        _check_outside(target, parts)
        parts.sort(key=lambda part: part.shard.index)
        check_same_run(parts)
        missing = check_shards(parts, partial=config.partial)
        check_rows(parts)
        if not missing:
            check_whole(parts)
        short = _merge_parts(parts, target, console)
    if missing:
        print_line(console, f"incomplete: {', '.join(map(str, missing))} of the run: not given", style="bold")
    return INCOMPLETE if missing or short else WHOLE


def _check_named_once(runs: Sequence[str]) -> None:
    places = [Path(name).expanduser().resolve() for name in runs]
    counts = Counter(places)
    twice = [name for name, place in zip(runs, places, strict=True) if counts[place] > 1]
    if twice:
        raise ConfigError(
            "this run is named twice", field="runs", found=", ".join(twice), remedy="name each shard once"
        )


def _check_outside(target: Path, parts: Sequence[MergePart]) -> None:
    inside = next((part.path for part in parts if part.path.resolve() in target.resolve().parents), None)
    if inside is not None:
        raise RunFolderError(
            "a shard's own folder is no place for the whole",
            where=str(target),
            field="into",
            found=str(inside),
            allowed="a folder outside the shards",
            remedy="name another with into=…",
        )


def _read_part(path: Path, held: ExitStack) -> MergePart:
    manifest = read_manifest(path)
    assert manifest is not None
    check_free(path, manifest)
    with suppress(PermissionError):  # a shard that only others may write
        held.enter_context(FolderLock(path))
    return MergePart(path, manifest, read_run_config(path), read_shard(manifest.shard), read_inputs(path))


def _merge_parts(parts: Sequence[MergePart], target: Path, console: Console) -> dict[str, int]:
    """Write the whole run; it stands at its place only when all of it is there. Returns what is missing, counted."""
    first = parts[0]
    composed = replace(first.config, shard=None, run=RunConfig(str(first.path)))
    assembly = assemble_run(composed, with_policy=True)
    text = to_yaml(replace(composed, run=RunConfig(str(target))))
    digests = {**first.manifest.digests, "config": compute_config_digest(text)}
    head = RunHead(
        "rollout",
        first.manifest.identity,
        digests,
        first.manifest.reward,
        first.manifest.ablation,
        merged=tuple(_describe_parent(part) for part in parts),
    )
    reward = make_reward(first.manifest.reward)
    building = target.with_name(f".{target.name}.merging")
    shutil.rmtree(building, ignore_errors=True)  # of a merge that was killed; the shards hold all of it
    try:
        with RunFolder.open_folder(
            building / target.name, head, text, ours=all(is_written_here(part.path) for part in parts)
        ) as folder:
            folder.write_plan([row for part in parts for row in part.rows])
            planned = read_inputs(folder.path)
            tally = RunTally(planned, assembly.environment, list_prices(composed.service_table))
            for result in _merge_results(parts, planned):
                folder.add_result(result)
                tally.add_row(result)
            for part in parts:
                for _, line in read_lines(part.path / "transcripts.jsonl"):
                    folder.journal.append(to_json(line))
            metrics = tally.write_metrics(folder, assembly.environment, reward)
        if target.exists():
            target.rmdir()  # empty, as was checked
        (building / target.name).rename(target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    console.print(make_closing_table(metrics, None, clusters=assembly.environment.info.clusters))
    if composed.report:
        print_line(console, write_report(target))
    print_line(console, f"run folder: {target} ({len(parts)} shards: {', '.join(str(part.path) for part in parts)})")
    short = tally.count_missing(planned)
    if short:
        counts = ", ".join(f"{count} {name}" for name, count in short.items())
        named = describe_left(planned, tally.graded)
        print_line(console, f"incomplete: {counts}" + (f": {named}" if named else ""), style="bold")
    return short


def _describe_parent(part: MergePart) -> dict[str, Any]:
    return {
        "run": str(part.path.resolve()),
        "kind": part.manifest.kind,
        "shard": str(part.shard),
        "identity": part.manifest.digests["identity"],
        "config": part.manifest.digests["config"],
        "gavel": part.manifest.gavel,
        "rows": len(part.rows),
    }


def _merge_results(parts: Sequence[MergePart], planned: Sequence[PlannedRow]) -> Iterator[Result]:
    """Yield all attempts of all parts in the plan's order, and skipped tasks in the file's; a row's attempts in theirs.

    Two passes over the files, so that memory holds places and not rows.
    """
    places: dict[RowKey, tuple[int, int]] = {row.key: (row.task_index, row.rollout_index) for row in planned}
    files = [part.path / name for part in parts for name in ("errors.jsonl", "results.jsonl")]
    found = sorted(
        (_find_place(line, places, file), number, offset)
        for number, file in enumerate(files)
        for offset, _, line in read_places(file)
    )
    _check_graded_once(found, files)
    with ExitStack() as opened:
        streams = [opened.enter_context(file.open("rb")) for file in files]
        for _, number, offset in found:
            streams[number].seek(offset)
            where = f"{files[number]} at byte {offset}"
            yield load(Result, read_document(streams[number].readline(), where), where=where, parsed=True)


def _check_graded_once(found: Sequence[tuple[tuple[int, int, int], int, int]], files: Sequence[Path]) -> None:
    graded: set[tuple[int, int]] = set()
    for (task, rollout, _), number, _ in found:
        if files[number].name != "results.jsonl":
            continue
        if (task, rollout) in graded:
            raise RunFolderError(
                "this row is graded twice",
                where=str(files[number]),
                found=f"place {task} of the tasks, rollout {rollout}",
                allowed="one line for each row",
                remedy="take one of the lines out (keep a copy)",
            )
        graded.add((task, rollout))


def _find_place(line: Mapping[str, Any], places: Mapping[RowKey, tuple[int, int]], file: Path) -> tuple[int, int, int]:
    key = (str(line.get("task_id")), int(line.get("rollout_index", 0)))
    place = places.get(key)
    if place is None and line.get("status") != "invalid_task":
        raise RunFolderError(
            "this row was never planned: inputs.jsonl is not the whole plan any more",
            where=str(file),
            field="task_id",
            found=f"{key[0]} (rollout {key[1]})",
            remedy="put a copy of the shard's inputs.jsonl back, or run the shard again in a new folder",
        )
    task, rollout = place or (int(line.get("metadata", {}).get("line", 1)) - 1, 0)
    return task, rollout, int(line.get("attempt", 1))
