"""What a prepared folder holds, as bytes by file name: tasks, verifiers, and the manifest that says where they came
from.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from gavel.envs.hygiene import Protected
from gavel.envs.source_files import Origin, SourceConfig
from gavel.envs.sources import Licence, SourceAdapter
from gavel.envs.types import Task
from gavel.judges.bindings import parse_verifier
from gavel.models.codec import dump, record, to_json, to_plain
from gavel.models.errors import ConfigError

MANIFEST_SCHEMA = "gavel.task_manifest/1"


@record
class SkippedRow:
    """A row that is no valid task: its place in the source, from 1, and why (``kind`` is a failure kind)."""

    line: int
    task_id: str
    kind: str
    error: str


@record
class SortedTasks:
    """A source's rows by fate; ``dropped`` maps how a question matched a protected one to the ids, ``skipped`` are not
    valid.
    """

    train: tuple[Task, ...]
    validation: tuple[Task, ...]
    dropped: Mapping[str, tuple[str, ...]]
    skipped: tuple[SkippedRow, ...] = ()


def make_contents(
    config: SourceConfig,
    adapter: SourceAdapter,
    origin: Origin,
    tasks: SortedTasks,
    protected: Protected,
    profiles: Mapping[str, str],
    licence: Licence,
) -> Mapping[str, bytes]:
    """Return the files by name, the manifest last; ``licence`` is that of the rows.

    Raises:
        ConfigError: ``profiles`` does not know the source's binding.
    """
    rows: dict[str, Sequence[Task]] = {"tasks.jsonl": tasks.train}
    if config.validation_fraction > 0:
        rows["validation.jsonl"] = tasks.validation
    made = {name: b"".join(dump(task) + b"\n" for task in of) for name, of in rows.items()}
    if tasks.skipped:
        made["skipped.jsonl"] = b"".join(to_json(row) + b"\n" for row in tasks.skipped)
    made["verifiers.json"] = _encode_pretty(
        _list_verifiers(config, adapter, profiles, [*tasks.train, *tasks.validation])
    )
    files = {name: {"sha256": _compute_sha256(data), "rows": data.count(b"\n")} for name, data in made.items()}
    files["verifiers.json"].pop("rows")
    manifest = _make_manifest(adapter, origin, tasks, protected, licence)
    split = {"validation_fraction": config.validation_fraction, "by": "SHA-256 of the question's normalised text"}
    return {**made, "manifest.json": _encode_pretty({**manifest, "split": split, "files": files})}


def _list_verifiers(
    config: SourceConfig, adapter: SourceAdapter, profiles: Mapping[str, str], tasks: Sequence[Task]
) -> Mapping[str, Any]:
    own = f"{adapter.name}/{config.binding or adapter.binding}"
    return {name: _describe_verifier(name, profiles) for name in sorted({task.verifier for task in tasks} or {own})}


def _describe_verifier(name: str, profiles: Mapping[str, str]) -> Mapping[str, Any]:
    target, binding = parse_verifier(name)
    if binding not in profiles:
        raise ConfigError(
            "there is no such binding",
            field="source.binding",
            found=binding,
            allowed=", ".join(profiles) or "(none is declared)",
            remedy=f"declare it: judging.bindings.{binding}.judge=… judging.bindings.{binding}.rubric=…",
        )
    return {"kind": "NamedJudgeVerifier", "binding": binding, "profile": profiles[binding], "target": target}


def _make_manifest(
    adapter: SourceAdapter, origin: Origin, tasks: SortedTasks, protected: Protected, licence: Licence
) -> Mapping[str, Any]:
    kept = (*tasks.train, *tasks.validation)
    dropped = {how: len(ids) for how, ids in tasks.dropped.items()}
    counts: dict[str, Any] = {"train": len(tasks.train), "validation": len(tasks.validation), "dropped": dropped}
    if tasks.skipped:
        counts["skipped"] = dict(sorted(Counter(row.kind for row in tasks.skipped).items()))
    return {
        "schema": MANIFEST_SCHEMA,
        "env": adapter.env,
        "source": {"name": adapter.name, **to_plain(origin)},
        "licence": to_plain(licence),
        "counts": {"rows": len(kept) + sum(dropped.values()) + len(tasks.skipped), **counts},
        "domains": count_domains(kept),
        "hygiene": _describe_hygiene(tasks, protected),
    }


def _describe_hygiene(tasks: SortedTasks, protected: Protected) -> Mapping[str, Any] | None:
    """Return the result of the check against protected sets; None where none was made."""
    if not protected.files:
        return None
    dropped = {how: {"count": len(ids), "ids": ids} for how, ids in tasks.dropped.items()}
    return {"protected": to_plain(protected.files), "dropped": dropped}


def count_domains(tasks: Iterable[Task]) -> dict[str, int]:
    """Count tasks by their domain."""
    return dict(sorted(Counter(str(task.metadata.get("domain", "other")) for task in tasks).items()))


def _encode_pretty(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n"


def _compute_sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
