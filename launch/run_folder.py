"""The run folder: what was planned, what was done, what failed; one writer, resumable, nothing ever deleted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

import gavel
from gavel.envs.types import Result, Task
from gavel.launch.files import JsonLines, read_lines, write_whole
from gavel.launch.identity import RunIdentity, check_identity
from gavel.launch.journal import RowKey
from gavel.launch.lease import HEARTBEAT_S, FolderLock, Lease, RunFolderError, holder
from gavel.models.codec import digest, dump, load, plain, to_json
from gavel.models.errors import RecordError
from gavel.models.failures import KINDS, MAX_ATTEMPTS_PER_ROW, FailureKind
from gavel.models.types import Message

MANIFEST_SCHEMA = "gavel.manifest/1"
INPUT_SCHEMA = "gavel.input/1"


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


@dataclass(frozen=True, slots=True)
class RunHead:
    """What the manifest says of a run besides its lease; ``reward`` and ``parent`` are plain JSON."""

    kind: str
    identity: RunIdentity
    digests: Mapping[str, Any]
    reward: Mapping[str, Any]
    ablation: str | None = None
    parent: Mapping[str, Any] | None = None


class RunFolder:
    """A run folder open for writing.

    Made by ``RunFolder.open``; use as a context manager. Results and errors are appended and never changed.
    """

    def __init__(self, path: Path, lock: FolderLock, manifest: dict[str, Any]) -> None:
        self.path, self._lock, self.manifest = path, lock, manifest
        self._stack = contextlib.ExitStack()
        self._stack.callback(lock.release)
        self._stack.callback(self._write_lease, None)
        self.journal = self._stack.enter_context(JsonLines(path / "transcripts.jsonl"))
        self._results = self._stack.enter_context(JsonLines(path / "results.jsonl"))
        self._errors = self._stack.enter_context(JsonLines(path / "errors.jsonl"))
        self._beat = 0.0

    @classmethod
    def open(cls, path: Path, head: RunHead, config_yaml: str, verb: str = "rollout") -> RunFolder:
        """Make the folder, or resume the run it holds; a run without any row yet may be begun anew under another identity.

        Raises:
            RunFolderError: in use, of another identity, or a folder that holds something else.
        """
        _check_place(path)
        path.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(path)
        try:
            manifest = read_manifest(path)
            if manifest is not None:
                _check_free(path, manifest)
            if manifest is None or _untouched(path):
                manifest = _new_manifest(head)
                write_whole(path / "config.yaml", config_yaml.encode())
            else:
                _check_same(path, manifest, head, verb)
            folder = cls(path, lock, manifest)
        except BaseException:
            lock.release()
            raise
        folder._write_lease(Lease.ours())
        return folder

    def plan(self, rows: Sequence[PlannedRow]) -> None:
        """Write ``inputs.jsonl``: every row planned, in order, the task at its first rollout; rows planned before stay.

        Raises:
            RunFolderError: a task of the same id has changed.
        """
        old = dict(_input_lines(self.path))
        for row in rows:
            known = old.get(row.key)
            if known is not None and known["task_digest"] != row.task_digest:
                raise RunFolderError(
                    "this task has changed since the run was made", where=str(self.path), field=row.task.task_id,
                    found=row.task_digest, allowed=known["task_digest"], remedy="name a new folder with run.dir=…",
                )  # fmt: skip
        new = {row.key: row for row in rows if row.key not in old}
        if not new and (self.path / "inputs.jsonl").exists():
            return
        lines = [(line["task_index"], line["rollout_index"], to_json(line)) for line in old.values()]
        lines += [(row.task_index, row.rollout_index, _input_line(row)) for row in new.values()]
        write_whole(self.path / "inputs.jsonl", b"".join(line + b"\n" for _, _, line in sorted(lines)))

    def add(self, result: Result) -> None:
        """Append a finished attempt: graded rows to ``results.jsonl``, all others to ``errors.jsonl``."""
        (self._results if result.status == "graded" else self._errors).append(dump(result))

    def heartbeat(self) -> None:
        """Renew the lease and sync the files, at most every ``HEARTBEAT_S`` seconds; cheap to call often."""
        now = time.monotonic()
        if now - self._beat >= HEARTBEAT_S:
            self._beat = now
            self._write_lease(Lease.ours())
            for log in (self.journal, self._results, self._errors):
                log.sync()

    def write(self, name: str, data: bytes) -> None:
        """Write a derived file whole (``metrics.json``, …)."""
        write_whole(self.path / name, data)

    def _write_lease(self, lease: Lease | None) -> None:
        self.manifest["lease"] = None if lease is None else plain(lease)
        write_whole(self.path / "manifest.json", orjson.dumps(self.manifest, option=orjson.OPT_INDENT_2))

    def close(self) -> None:
        """Close the files, give the lease back and let others in."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _check_place(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise RunFolderError("this is a file, not a folder", where=str(path), remedy="name another place with run.dir=…")
    if path.is_dir() and not (path / "manifest.json").exists():
        strangers = sorted(item.name for item in path.iterdir() if not item.name.startswith("."))
        if strangers:
            raise RunFolderError(
                "this folder is not a run and not empty", where=str(path), found=", ".join(strangers[:5]),
                remedy="name a new or empty folder with run.dir=…",
            )  # fmt: skip


def _new_manifest(head: RunHead) -> dict[str, Any]:
    return {
        "schema": MANIFEST_SCHEMA,
        "kind": head.kind,
        "gavel": gavel.__version__,
        "created": time.time(),
        "parent": head.parent,
        "identity": plain(head.identity),
        "reward": plain(head.reward),
        "ablation": head.ablation,
        "digests": {**plain(head.digests), "identity": digest(head.identity)},
        "lease": None,
    }


def _untouched(path: Path) -> bool:
    files = ("transcripts.jsonl", "results.jsonl", "errors.jsonl")
    empty = all(not (path / name).exists() or (path / name).stat().st_size == 0 for name in files)
    if empty:
        (path / "inputs.jsonl").unlink(missing_ok=True)  # a plan of nothing done
    return empty


def _check_free(path: Path, manifest: Mapping[str, Any]) -> None:
    owner = holder(manifest["lease"], time.time())
    if owner:
        raise RunFolderError(
            "another process is writing this run", where=str(path), found=owner,
            remedy="wait for it, stop it, or name another folder with run.dir=…; a dead one's lease ends by itself",
        )  # fmt: skip


def _check_same(path: Path, manifest: Mapping[str, Any], head: RunHead, verb: str) -> None:
    if (manifest["kind"], manifest["parent"]) != (head.kind, plain(head.parent)):
        parent = (manifest["parent"] or {}).get("run")
        raise RunFolderError(
            "this folder holds another run", where=str(path), found=f"a {manifest['kind']}" + (f" of {parent}" if parent else ""),
            allowed=f"a {head.kind}" + (f" of {head.parent['run']}" if head.parent else ""),
            remedy="name a new folder with into=…" if head.parent else "name a new folder with run.dir=…",
        )  # fmt: skip
    if head.kind == "rescore" and manifest["reward"] != plain(head.reward):
        raise RunFolderError(
            "this folder holds another rescoring", where=str(path), found=f"reward {manifest['reward']}",
            allowed=f"reward {plain(head.reward)}", remedy="name a new folder with into=…, or leave it out",
        )  # fmt: skip
    check_identity(str(path), manifest["identity"], head.identity, verb)


def read_manifest(path: Path) -> dict[str, Any] | None:
    """Read a run's manifest; None where there is none.

    Raises:
        RecordError: it is not one this version can read.
    """
    file = path / "manifest.json"
    if not file.exists():
        return None
    try:
        manifest = orjson.loads(file.read_bytes())
    except orjson.JSONDecodeError:
        manifest = {}
    if not isinstance(manifest, dict) or manifest.get("schema") != MANIFEST_SCHEMA:
        raise RecordError("not a manifest this version can read", where=str(file), field="schema", allowed=MANIFEST_SCHEMA)
    return manifest


def _input_line(row: PlannedRow) -> bytes:
    head = {"schema": INPUT_SCHEMA, "task_index": row.task_index, "rollout_index": row.rollout_index}
    head |= {"task_id": row.task.task_id, "task_digest": row.task_digest}
    if row.rollout_index > 0:
        return to_json(head)
    return b'%s,"task":%s}' % (to_json(head)[:-1], dump(row.task))


def _input_lines(path: Path) -> Iterator[tuple[RowKey, dict[str, Any]]]:
    for number, line in read_lines(path / "inputs.jsonl"):
        if line.get("schema") != INPUT_SCHEMA:
            raise RecordError("not a planned row", where=f"{path / 'inputs.jsonl'}:{number}", field="schema", allowed=INPUT_SCHEMA)
        yield (line["task_id"], line["rollout_index"]), line


def read_inputs(path: Path) -> list[PlannedRow]:
    """Read the rows planned for a run, in order; targets are plain JSON until the environment parses them."""
    tasks: dict[str, Task] = {}
    rows = []
    for (task_id, rollout), line in _input_lines(path):
        if "task" in line:
            tasks[task_id] = load(Task, line["task"], where=str(path / "inputs.jsonl"))
        rows.append(PlannedRow(line["task_index"], rollout, tasks[task_id], line["task_digest"]))
    return rows


def read_results(path: Path, name: str = "results.jsonl") -> Iterator[Result]:
    """Yield the rows of ``results.jsonl`` or ``errors.jsonl`` of the run at ``path``."""
    for number, line in read_lines(path / name):
        yield load(Result, line, where=f"{path / name}:{number}")


def own_messages(rows: Sequence[PlannedRow]) -> dict[str, tuple[Message, ...]]:
    """Return each task's own messages by its id."""
    return {row.task.task_id: row.task.messages for row in rows}


def last_attempts(errors: Sequence[Result]) -> dict[RowKey, Result]:
    """Return the newest failed attempt of each row."""
    return {(row.task_id, row.rollout_index): row for row in errors}


def is_owed(errors: Sequence[Result]) -> bool:
    """Say whether a row with these failed attempts is tried again: the last kind allows it and fewer than 3 attempts were made.

    Rows that were stopped by us (``cancelled``, ``shutdown``) do not count as attempts.
    """
    stopped = (FailureKind.CANCELLED, FailureKind.SHUTDOWN)
    kinds = [row.outcome.failure.kind for row in errors if row.outcome.failure is not None]
    tried = [kind for kind in kinds if kind not in stopped]
    return len(tried) < MAX_ATTEMPTS_PER_ROW and all(KINDS[kind].retried_on_resume for kind in tried[-1:])
