"""Files that survive a kill at any byte: append-only JSON lines with a repaired tail, and whole-or-absent writes."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import orjson

from gavel.models.closing import Closing
from gavel.models.codec import load
from gavel.models.errors import GavelError, RecordError, shorten_value

T = TypeVar("T")

_TAIL_BLOCK = 1 << 16
LINE_DIGEST = "line_digest"
"""The last field of a line that carries its own digest: BLAKE2b over the line without this field, 8 bytes as hex."""
_DIGEST_HEAD = b',"line_digest":"'
_DIGEST_BYTES = 8
_DIGEST_SIZE = len(_DIGEST_HEAD) + 2 * _DIGEST_BYTES + 2
PRIVATE_FILE, PRIVATE_FOLDER = 0o660, 0o770
"""Modes before the umask: what models said is nothing for every account of a machine."""


class AlteredLine(RecordError):
    """A stored line is not the one that was written."""


def refuse_fault(fault: RecordError) -> None:
    """Raise what was found; where a reader is given another function, it tells that one and reads on."""
    raise fault


Tell = Callable[[RecordError], None]


class PersistenceError(GavelError):
    """A row could not be written; the run stops, and everything before stays whole."""

    exit_code = 4


class JsonLines(Closing):
    """An append-only file of JSON documents, one a line.

    A line is on the file system's side when ``append`` returns, so a kill of this process cannot lose it; ``sync``
    (called now and then, and at close) asks for the disk. A torn last line, left by a kill or a full disk, is moved to
    ``<name>.torn`` on opening.

    Args:
        path: made if need be, readable by its owner and group.
        digested: each line gets a digest of itself (``LINE_DIGEST``), so that a careless edit shows when it is read.

    Raises:
        PersistenceError: the line could not be written; the file is cut back to its last whole line.
        RecordError: the file is a link, so that what is written would land elsewhere.
    """

    def __init__(self, path: Path, *, digested: bool = False) -> None:
        self.path, self._digested = path, digested
        self._fd = open_own(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        self._size = _repair_tail(self._fd, path)
        self._dirty = False

    def append(self, line: bytes) -> None:
        """Write one document (no newline in it) and its newline at once."""
        if self._digested:
            line = add_digest(line)
        data = memoryview(line + b"\n")
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as failed:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise _make_write_error(self.path, failed) from failed
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


def open_own(path: Path, flags: int) -> int:
    """Open a file of a folder to write it, made if need be; a folder that was received must not have us write into
    another's files.

    Raises:
        RecordError: it is a link, or has a second name.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW, PRIVATE_FILE)
    except OSError as failed:
        if failed.errno != errno.ELOOP:
            raise
        raise _make_link_error(path, f"a link to {path.readlink()}") from None
    if os.fstat(descriptor).st_nlink > 1:
        os.close(descriptor)
        raise _make_link_error(path, "a hard link")
    return descriptor


def _make_link_error(path: Path, found: str) -> RecordError:
    return RecordError(
        "what is written here would land in another file",
        where=str(path),
        found=found,
        allowed="a file of this folder alone",
        remedy="put a copy of the file in its place",
    )


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
        with open(path.with_name(path.name + ".torn"), "ab", opener=_open_private) as torn:
            torn.write(os.pread(fd, size - end, end) + b"\n")
        os.ftruncate(fd, end)
    return end


def add_digest(line: bytes) -> bytes:
    """Return a line, a JSON object, with its own digest as its last field."""
    return line[:-1] + _DIGEST_HEAD + _digest_line(line) + b'"}'


def is_altered(line: bytes) -> bool | None:
    """Tell whether a line is another than its digest says; None where it carries none.

    ``line`` may end with its newline.
    """
    line = line.rstrip(b"\n")
    at = len(line) - _DIGEST_SIZE
    if at < 0 or not line.startswith(_DIGEST_HEAD, at):
        return True if _DIGEST_HEAD in line else None  # a text's own quotes are escaped
    return _digest_line(line[:at] + b"}") != line[at + len(_DIGEST_HEAD) : -2]


def _digest_line(line: bytes) -> bytes:
    return hashlib.blake2b(line, digest_size=_DIGEST_BYTES).hexdigest().encode()


def parse_line(line: bytes, where: str) -> tuple[dict[str, Any], bool]:
    """Read one line, its digest left out; also say whether it is another than its digest says.

    Raises:
        RecordError: it is no JSON object.
    """
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        raise RecordError(
            "this line is not a JSON object",
            where=where,
            found=shorten_value(line.decode("utf-8", "replace")),
            remedy="a run's files are written by gavel alone; take the line out (keep a copy) and run again",
        )
    return document, document.pop(LINE_DIGEST, None) is not None and is_altered(line) is not False


def read_document(line: bytes, where: str, tell: Tell = refuse_fault) -> dict[str, Any]:
    """Read one line, its digest left out; ``tell`` is told of one that is another than its digest says
    (``AlteredLine``).

    Raises:
        RecordError: it is no JSON object.
    """
    document, altered = parse_line(line, where)
    if altered:
        tell(
            AlteredLine(
                "this line was changed after it was written: its digest is another's",
                where=where,
                field=LINE_DIGEST,
                remedy="put the file back as it was, or take the line out (keep a copy) and run again; `gavel "
                "verify RUN` lists all",
            )
        )
    return document


def read_places(path: Path, tell: Tell = refuse_fault) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield (byte it begins at, line number from 1, document) of a JSON lines file; a torn last line is passed over, a
    missing file is empty. ``tell`` is told of each line that is no JSON object, which is then left out, or another than
    its digest says.
    """
    if not path.is_file():
        if path.exists():
            tell(RecordError("this is no file", where=str(path), remedy="put the file back as it was"))
        return
    offset = 0
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                document = read_document(line, f"{path}:{number}", tell)
            except RecordError as fault:
                tell(fault)
            else:
                yield offset, number, document
            offset += len(line)


def read_lines(path: Path, tell: Tell = refuse_fault) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number from 1, document); see ``read_places``."""
    for _, number, document in read_places(path, tell):
        yield number, document


def write_whole(path: Path, data: bytes) -> None:
    """Write ``path`` so that a reader sees the old file or the new one, never a part.

    Raises:
        PersistenceError: it could not be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with os.fdopen(open_own(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as failed:
        part.unlink(missing_ok=True)
        raise _make_write_error(path, failed) from failed


def _open_private(path: str, flags: int) -> int:
    return open_own(Path(path), flags)


def _make_write_error(path: Path, failed: OSError) -> PersistenceError:
    return PersistenceError(
        f"{path}: could not be written: {failed.strerror}\n"
        "  fix:     make room or mend the folder, then run the same command again; everything stored before is kept"
    )


def load_lines(cls: type[T], path: Path) -> list[T]:
    """Return the records in the lines of a file; one that a kill left torn, or of another version, is passed over."""
    found = []
    with contextlib.suppress(OSError):
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(orjson.JSONDecodeError, RecordError):
                found.append(load(cls, orjson.loads(line), where=path.name))
    return found


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one where the file is not there, is damaged or holds another value."""
    try:
        value = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return value if isinstance(value, dict) else {}
