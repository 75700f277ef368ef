"""A run's manifest: what it is of, what made it, who writes it; and when a folder may be written."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import orjson

import gavel
from gavel.launch.runs.files import write_whole
from gavel.launch.runs.identity import RunIdentity, check_identity
from gavel.launch.runs.lease import Lease, RunFolderError, find_holder
from gavel.models.codec import compute_digest, dump, load, record, to_plain
from gavel.models.errors import RecordError, shorten_value

_OURS = frozenset({
    "config.yaml", "inputs.jsonl", "transcripts.jsonl", "results.jsonl", "errors.jsonl", "metrics.json", "reward_profile.jsonl", "logs",  # noqa: E501
})  # fmt: skip
"""What a run that was killed before its manifest stood may have left."""


@record
class RunHead:
    """What is known of a run before it is made: ``reward`` its reward policy's options, ``parent`` the run it is made
    from.
    """

    kind: str
    identity: RunIdentity
    digests: Mapping[str, Any]
    reward: Mapping[str, Any]
    ablation: str | None = None
    parent: Mapping[str, Any] | None = None
    shard: str | None = None
    merged: tuple[Mapping[str, Any], ...] = ()


@record
class Manifest:
    """``manifest.json``: ``created`` in Unix seconds; ``digests`` of config, tasks, rubrics and identity; ``lease`` of
    its writer. ``shard`` is the part ``i/n`` it holds of a run, None for a whole one; ``merged`` are the shards it was
    put together from; ``config_mark`` is the mark of the user who wrote ``config.yaml`` (``gavel.launch.runs.origin``),
    None for none."""

    SCHEMA: ClassVar[str] = "gavel.manifest/1"

    kind: str
    gavel: str
    created: float
    parent: Mapping[str, Any] | None
    identity: RunIdentity
    reward: Mapping[str, Any]
    ablation: str | None
    digests: Mapping[str, Any]
    lease: Lease | None
    shard: str | None = None
    merged: tuple[Mapping[str, Any], ...] = ()
    config_mark: str | None = None


def make_manifest(head: RunHead) -> Manifest:
    """Return the manifest of a run that begins now."""
    digests = {**head.digests, "identity": compute_digest(head.identity)}
    return Manifest(
        head.kind,
        gavel.__version__,
        time.time(),
        head.parent,
        head.identity,
        head.reward,
        head.ablation,
        digests,
        None,
        head.shard,
        head.merged,
    )


def read_manifest(path: Path) -> Manifest | None:
    """Read the manifest of the run at ``path``; None where there is none.

    Raises:
        RecordError: it is damaged, or not one this version can read; names the field.
    """
    file = path / "manifest.json"
    if not file.is_file():
        return None
    data = file.read_bytes()
    try:
        manifest = orjson.loads(data)
    except orjson.JSONDecodeError:
        manifest = None
    if not isinstance(manifest, dict):
        raise RecordError(
            "this manifest is not a JSON object",
            where=str(file),
            found=shorten_value(data[:200].decode("utf-8", "replace")),
            remedy="put a copy of it back, or begin the run anew in another folder",
        )
    return load(Manifest, manifest, where=str(file))


_ANCESTORS = 8


def read_lineage(path: Path, manifest: Manifest) -> list[tuple[Path, Manifest]]:
    """Return the run and the runs it was made from that are still there, the newest first.

    Raises:
        RecordError: a manifest is damaged.
    """
    found = [(path, manifest)]
    while (parent := found[-1][1].parent) is not None and len(found) < _ANCESTORS:
        folder = Path(str(parent.get("run", "")))
        above = read_manifest(folder) if folder.is_dir() else None
        if above is None or folder in [seen for seen, _ in found]:
            break
        found.append((folder, above))
    return found


def write_manifest(path: Path, manifest: Manifest, lease: Lease | None) -> Manifest:
    """Write the manifest with a lease (None: free); return what was written."""
    new = replace(manifest, lease=lease)
    write_whole(path / "manifest.json", orjson.dumps(orjson.loads(dump(new)), option=orjson.OPT_INDENT_2))
    return new


def check_place(path: Path) -> None:
    """Refuse a place that cannot become a run folder.

    Raises:
        RunFolderError: a file, or a folder that holds something else.
    """
    if path.exists() and not path.is_dir():
        raise RunFolderError(
            "this is a file, not a folder", where=str(path), remedy="name another place with run.dir=…"
        )
    if path.is_dir() and not (path / "manifest.json").exists():
        strangers = sorted(
            item.name for item in path.iterdir() if not item.name.startswith(".") and item.name not in _OURS
        )
        if strangers:
            raise RunFolderError(
                "this folder is not a run and not empty",
                where=str(path),
                found=", ".join(strangers[:5]),
                remedy="name a new or empty folder with run.dir=…",
            )


def check_free(path: Path, manifest: Manifest) -> None:
    """Refuse a folder that a process of another host writes.

    Raises:
        RunFolderError: says which.
    """
    owner = find_holder(manifest.lease, time.time())
    if owner:
        raise RunFolderError(
            "another process is writing this run",
            where=str(path),
            found=owner,
            remedy="wait for it, stop it, or name another folder with run.dir=…; a dead one's lease ends by itself",
        )


def check_same(path: Path, manifest: Manifest, head: RunHead, verb: str) -> None:
    """Refuse to go on with another run's folder.

    Raises:
        RunFolderError: another kind, parent or identity, or another reward in a rescoring.
    """
    if (manifest.kind, manifest.parent) != (head.kind, to_plain(head.parent)):
        raise RunFolderError(
            "this folder holds another run",
            where=str(path),
            found=_describe_kind(manifest.kind, manifest.parent),
            allowed=_describe_kind(head.kind, head.parent),
            remedy="name a new folder with into=…" if head.parent else "name a new folder with run.dir=…",
        )
    if manifest.shard != head.shard and head.kind == manifest.kind == "rollout":
        raise RunFolderError(
            "this folder holds another part of a run",
            where=str(path),
            field="shard",
            found=manifest.shard or "the whole",
            allowed=head.shard or "the whole",
            remedy=f"set shard={manifest.shard or 'null'}, or name a new folder with run.dir=…",
        )
    if head.kind == "rescore" and manifest.reward != to_plain(head.reward):
        raise RunFolderError(
            "this folder holds another rescoring",
            where=str(path),
            found=f"reward {dict(manifest.reward)}",
            allowed=f"reward {dict(head.reward)}",
            remedy="name a new folder with into=…, or leave it out",
        )
    check_identity(str(path), to_plain(manifest.identity), head.identity, verb)


def _describe_kind(kind: str, parent: Mapping[str, Any] | None) -> str:
    return f"a {kind}" + (f" of {parent.get('run')}" if parent else "")
