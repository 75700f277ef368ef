"""Files that survive a kill at any byte: append-only JSON lines with a repaired tail, and whole-or-absent writes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from gavel.models.errors import GavelError, RecordError, shorten

_TAIL_BLOCK = 1 << 16


class PersistenceError(GavelError):
    """A row could not be written; the run stops, and everything before stays whole."""

    exit_code = 4


class JsonLines:
    """An append-only file of JSON documents, one a line.

    A line is on the file system's side when ``append`` returns, so a kill of this process cannot lose it; ``sync`` (called now and
    then, and at close) asks for the disk. A torn last line, left by a kill or a full disk, is moved to ``<name>.torn`` on opening.

    Raises:
        PersistenceError: the line could not be written; the file is cut back to its last whole line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        self._size = _repair_tail(self._fd, path)
        self._dirty = False

    def append(self, line: bytes) -> None:
        """Write one document (no newline in it) and its newline at once."""
        data = memoryview(line + b"\n")
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as failed:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise _refused(self.path, failed) from failed
        self._size += len(line) + 1
        self._dirty = True

    def sync(self) -> None:
        """Ask for what was appended to be on the disk."""
        if self._dirty:
            self._dirty = False  # first, for a thread may append meanwhile
            os.fdatasync(self._fd)

    def close(self) -> None:
        """Sync and close; closing twice is allowed."""
        if self._fd >= 0:
            self.sync()
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _repair_tail(fd: int, path: Path) -> int:
    """Cut bytes behind the last newline and keep them beside the file; return the size."""
    size = os.fstat(fd).st_size
    end = size
    while end > 0:
        start = max(0, end - _TAIL_BLOCK)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        with path.with_name(path.name + ".torn").open("ab") as torn:
            torn.write(os.pread(fd, size - end, end) + b"\n")
        os.ftruncate(fd, end)
    return end


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number from 1, document) of a JSON lines file; a torn last line is passed over, a missing file is empty.

    Raises:
        RecordError: a whole line is not a JSON object.
    """
    if not path.exists():
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                document = orjson.loads(line)
            except orjson.JSONDecodeError:
                document = None
            if not isinstance(document, dict):
                raise RecordError(
                    "this line is not a JSON object", where=f"{path}:{number}", found=shorten(line.decode("utf-8", "replace")),
                    remedy="a run's files are written by gavel alone; take the line out (keep a copy) and run again",
                )  # fmt: skip
            yield number, document


def write_whole(path: Path, data: bytes) -> None:
    """Write ``path`` so that a reader sees the old file or the new one, never a part.

    Raises:
        PersistenceError: it could not be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as failed:
        part.unlink(missing_ok=True)
        raise _refused(path, failed) from failed


def _refused(path: Path, failed: OSError) -> PersistenceError:
    return PersistenceError(
        f"{path}: could not be written: {failed.strerror}\n"
        "  fix:     make room or mend the folder, then run the same command again; everything stored before is kept"
    )
