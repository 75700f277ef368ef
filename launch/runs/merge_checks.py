"""Whether runs are the shards of one run: what must agree, what must not overlap, what must be there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gavel.launch.config.schema import RolloutConfig
from gavel.launch.runs.identity import list_differences
from gavel.launch.runs.inputs import PlannedRow
from gavel.launch.runs.journal import RowKey
from gavel.launch.runs.lease import RunFolderError
from gavel.launch.runs.manifest import Manifest
from gavel.launch.runs.shards import WHOLE, Shard
from gavel.models.codec import compute_digest, to_plain
from gavel.models.errors import shorten_value


@dataclass(frozen=True, slots=True)
class MergePart:
    """One shard: where it is, what its manifest and config say, which rows it planned."""

    path: Path
    manifest: Manifest
    config: RolloutConfig
    shard: Shard
    rows: Sequence[PlannedRow]


def check_same_run(parts: Sequence[MergePart]) -> None:
    """Refuse parts that are not of one run.

    Raises:
        RunFolderError: names the part and what differs.
    """
    for part in parts:
        if part.manifest.kind != "rollout" or part.shard == WHOLE:
            kind = part.manifest.kind
            what = "a whole run" if kind == "rollout" else f"a {kind}"
            raise RunFolderError(
                "this is no shard of a run",
                where=str(part.path),
                found=what,
                allowed="what `gavel rollout … shard=i/n` wrote",
                remedy="leave it out" if kind == "rollout" else f"merge the shards first, then {kind} the whole",
            )
    first = parts[0]
    for part in parts[1:]:
        if changed := [
            line for name, old, new in _list_agreements(first, part) for line in list_differences(old, new, name)
        ]:
            raise RunFolderError(
                f"these are not shards of one run: they differ from {first.path}",
                where=str(part.path),
                found="; ".join(changed[:6]) + (f" (and {len(changed) - 6} more)" if changed[6:] else ""),
                remedy="bring them to one plan by running the shards again with the same words, or leave this one out",
            )


def _list_agreements(first: MergePart, other: MergePart) -> list[tuple[str, object, object]]:
    """Return what shards have in common, by name: the identity and the reward, and the plan they were cut from."""
    return [
        ("identity", to_plain(first.manifest.identity), to_plain(other.manifest.identity)),
        ("reward", to_plain(first.manifest.reward), to_plain(other.manifest.reward)),
        ("shards", first.shard.of, other.shard.of),
        ("rollouts_per_task", first.config.rollouts_per_task, other.config.rollouts_per_task),
        ("tasks.limit", first.config.tasks.limit, other.config.tasks.limit),
        ("tasks", first.manifest.digests.get("tasks"), other.manifest.digests.get("tasks")),
    ]


def check_shards(parts: Sequence[MergePart], *, partial: bool) -> list[Shard]:
    """Return the shards that are missing.

    Raises:
        RunFolderError: one is given twice; or some are missing and ``partial`` does not allow it.
    """
    seen: dict[Shard, MergePart] = {}
    for part in parts:
        if part.shard in seen:
            raise RunFolderError(
                f"shard {part.shard} is given twice",
                where=str(part.path),
                found=str(seen[part.shard].path),
                remedy="leave one of them out",
            )
        seen[part.shard] = part
    of = parts[0].shard.of
    missing = [shard for index in range(1, of + 1) if (shard := Shard(index, of)) not in seen]
    if missing and not partial:
        raise RunFolderError(
            "shards of this run are missing",
            field="runs",
            found=", ".join(map(str, seen)),
            allowed=f"all {of} of them",
            remedy=f"add {shorten_value(', '.join(map(str, missing)), 200)}, or set partial=true",
        )
    return missing


def check_whole(parts: Sequence[MergePart]) -> None:
    """Refuse shards whose plans do not make up the whole: one that was only looked at (``inspect``), or killed before
    it had planned.

    Raises:
        RunFolderError: says how much each shard planned.
    """
    config = parts[0].config
    rows = sorted((row for part in parts for row in part.rows), key=lambda row: (row.task_index, row.rollout_index))
    limit = config.tasks.limit or len(rows) + max((row.task_index for row in rows), default=0)
    asked = [
        row for row in rows if row.rollout_index < config.rollouts_per_task and row.task_index < limit
    ]  # it may hold more
    if parts[0].manifest.digests.get("tasks") not in [
        compute_digest([row.task_digest for row in plan]) for plan in (asked, rows)
    ]:
        raise RunFolderError(
            "the plans of these shards are not the whole run's",
            where="inputs.jsonl of the shards",
            field="runs",
            found=shorten_value(", ".join(f"{part.path}: {len(part.rows)} rows" for part in parts), 300),
            allowed="every task of the run, in one of the shards",
            remedy="run each shard again with the same words: that plans what it lacks, and plays it",
        )


def check_rows(parts: Sequence[MergePart]) -> None:
    """Refuse rows that stand in two parts, or in one they do not belong to.

    Raises:
        RunFolderError: names the row and the folders.
    """
    owners: dict[RowKey, MergePart] = {}
    places: dict[int, str] = {}
    for part in parts:
        for row in part.rows:
            where = f"{row.task.task_id} (rollout {row.rollout_index})"
            if row.key in owners:
                raise RunFolderError(
                    "this row stands in two shards", where=str(part.path), field=where, found=str(owners[row.key].path)
                )
            if (
                not part.shard.contains(row.task_index)
                or places.setdefault(row.task_index, row.task.task_id) != row.task.task_id
            ):
                raise RunFolderError(
                    f"this row is no part of shard {part.shard}",
                    where=str(part.path),
                    field=where,
                    found=f"place {row.task_index} of the tasks",
                    remedy="the task file has changed between the shards: run them again in new folders",
                )
            owners[row.key] = part
