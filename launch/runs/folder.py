"""The run folder: what was planned, what was done, what failed; one writer, resumable, nothing done is ever deleted."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gavel.envs.types import Result, RewardPolicy
from gavel.launch.runs.files import PRIVATE_FOLDER, JsonLines, Tell, read_lines, refuse_fault, write_whole
from gavel.launch.runs.inputs import PlannedRow, merge_inputs, read_inputs
from gavel.launch.runs.journal import RowKey
from gavel.launch.runs.lease import HEARTBEAT_S, FolderLock, Lease
from gavel.launch.runs.manifest import (
    Manifest,
    RunHead,
    check_free,
    check_place,
    check_same,
    make_manifest,
    read_manifest,
    write_manifest,
)
from gavel.launch.runs.origin import mark_config
from gavel.launch.runs.stored import RowChecks
from gavel.models.closing import Closing
from gavel.models.codec import dump, load
from gavel.models.errors import RecordError
from gavel.models.failures import KINDS, MAX_ATTEMPTS_PER_ROW, FailureKind


class RunFolder(Closing):
    """A run folder open for writing.

    Made by ``RunFolder.open_folder``; use as a context manager. Results and errors are appended and never changed.
    """

    def __init__(self, path: Path, lock: FolderLock, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest
        self._stack = contextlib.ExitStack()
        self._stack.callback(lock.close)
        self._stack.callback(self._write_lease, None)
        self.journal = self._stack.enter_context(JsonLines(path / "transcripts.jsonl", digested=True))
        self._results = self._stack.enter_context(JsonLines(path / "results.jsonl", digested=True))
        self._errors = self._stack.enter_context(JsonLines(path / "errors.jsonl", digested=True))
        self._beat, self._beating = 0.0, threading.Lock()

    @classmethod
    def open_folder(
        cls, path: Path, head: RunHead, config_yaml: str, verb: str = "rollout", *, ours: bool = True
    ) -> RunFolder:
        """Make the folder, or resume the run it holds; a run of which no row was begun may be begun anew under another
        identity, and one without a graded row takes another reward. ``ours`` false leaves the config unmarked: it holds
        parts of a folder that was made elsewhere.

        Raises:
            RunFolderError: in use, of another identity, or a folder that holds something else.
        """
        check_place(path)
        path.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        lock = FolderLock(path)
        try:
            manifest = read_manifest(path)
            if manifest is not None:
                check_free(path, manifest)
            begins = manifest is None or _begin_anew(path, verb)
            manifest = make_manifest(head) if manifest is None or begins else _continue_run(path, manifest, head, verb)
            manifest = replace(manifest, config_mark=mark_config(config_yaml.encode()) if ours else None)
            manifest = write_manifest(path, manifest, Lease.make_own())
            write_whole(path / "config.yaml", config_yaml.encode())  # addresses and limits may have changed
            return cls(path, lock, manifest)
        except BaseException:
            lock.close()
            raise

    def write_plan(self, rows: Sequence[PlannedRow]) -> None:
        """Write ``inputs.jsonl``; rows planned before stay.

        Raises:
            RunFolderError: a task of the same id has changed.
        """
        data = merge_inputs(read_inputs(self.path), rows, str(self.path))
        if data is not None:
            write_whole(self.path / "inputs.jsonl", data)

    def add_result(self, result: Result) -> None:
        """Append a finished attempt: graded rows to ``results.jsonl``, all others to ``errors.jsonl``."""
        (self._results if result.status == "graded" else self._errors).append(dump(result))

    def renew_lease(self) -> None:
        """Renew the lease and sync the files, at most every ``HEARTBEAT_S`` seconds; cheap to call often, from any
        thread.
        """
        now = time.monotonic()
        if now - self._beat < HEARTBEAT_S:
            return
        with self._beating:
            if now - self._beat < HEARTBEAT_S:
                return
            self._beat = now
            self._write_lease(Lease.make_own())
            for log in (self.journal, self._results, self._errors):
                log.sync()

    def write_file(self, name: str, data: bytes) -> None:
        """Write a derived file whole (``metrics.json``, …)."""
        write_whole(self.path / name, data)

    def _write_lease(self, lease: Lease | None) -> None:
        self.manifest = write_manifest(self.path, self.manifest, lease)

    def close(self) -> None:
        """Close the files, give the lease back and let others in."""
        self._stack.close()


def _continue_run(path: Path, manifest: Manifest, head: RunHead, verb: str) -> Manifest:
    check_same(path, manifest, head, verb)
    return _extend_manifest(
        manifest if has_rewards(path) else replace(manifest, reward=head.reward, ablation=head.ablation), head
    )


def _extend_manifest(manifest: Manifest, head: RunHead) -> Manifest:
    """Return the manifest with the tasks of the plan as it is now: a higher ``tasks.limit`` or ``rollouts_per_task``
    extends a run.
    """
    return replace(
        manifest, digests={**manifest.digests, "tasks": head.digests.get("tasks", manifest.digests.get("tasks"))}
    )


def has_rewards(path: Path) -> bool:
    """Whether any row of the run at ``path`` is graded, and so rewarded."""
    return next(read_lines(path / "results.jsonl"), None) is not None


def has_no_row(path: Path) -> bool:
    """Whether no row of the run at ``path`` was begun, or there is no run: nothing is journalled, and only skipped
    tasks are stored.
    """
    journal = path / "transcripts.jsonl"
    quiet = not journal.exists() or journal.stat().st_size == 0
    return (
        quiet
        and not has_rewards(path)
        and all(row.status == "invalid_task" for row in read_results(path, "errors.jsonl"))
    )


def _begin_anew(path: Path, verb: str) -> bool:
    """Whether nothing was done yet, so that the run begins anew; its plan is dropped, and the tasks it skipped: found
    again.
    """
    errors = path / "errors.jsonl"
    if not has_no_row(path) or (verb != "rollout" and errors.exists() and errors.stat().st_size > 0):
        return False
    for file in (path / "inputs.jsonl", errors):
        file.unlink(missing_ok=True)
    return True


def read_results(
    path: Path,
    name: str = "results.jsonl",
    reward: RewardPolicy | None = None,
    planned: Mapping[RowKey, str] | None = None,
    tell: Tell = refuse_fault,
) -> Iterator[Result]:
    """Yield the rows of ``results.jsonl`` or ``errors.jsonl`` of the run at ``path``, each looked at before it is
    believed.

    Args:
        path: the run's folder.
        name: the file.
        reward: the run's reward policy, where rewards are to be made again.
        planned: the digest of each planned row's task, where it is known.
        tell: told of everything that is not as it was written, with file, line, field, what is found and what is right;
            a line that is no row is then left out.
    """
    checks = RowChecks(name, reward, planned, tell)
    for number, line in read_lines(path / name, tell):
        where = f"{path / name}:{number}"
        try:
            result = load(Result, line, where=where, parsed=True)
        except RecordError as fault:
            tell(fault)
            continue
        checks.check_row(result, where)
        yield result


def list_last_attempts(errors: Sequence[Result]) -> dict[RowKey, Result]:
    """Return the newest failed attempt of each row."""
    return {(row.task_id, row.rollout_index): row for row in errors}


def is_owed(errors: Sequence[Result]) -> bool:
    """Say whether a row with these failed attempts is tried again: the last kind allows it and fewer than 3 attempts
    were made.

    Rows that were stopped by us (``cancelled``, ``shutdown``) do not count as attempts.
    """
    stopped = (FailureKind.CANCELLED, FailureKind.SHUTDOWN)
    kinds = [row.outcome.failure.kind for row in errors if row.outcome.failure is not None]
    tried = [kind for kind in kinds if kind not in stopped]
    return len(tried) < MAX_ATTEMPTS_PER_ROW and all(KINDS[kind].retried_on_resume for kind in tried[-1:])
