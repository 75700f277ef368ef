"""Replies kept between runs: one SQLite file (write-ahead log), node-local, keyed by everything a reply depends on.

A reply is stored only when its user says that it was usable (``ChatClient.confirm``); a file that cannot be read or
written turns the cache off, never a call into a failure.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from gavel.models.closing import Closing
from gavel.models.codec import encode_canonical, record
from gavel.models.errors import ConfigError
from gavel.models.pinned import find_default_cache
from gavel.models.service import Service
from gavel.models.types import ChatRequest, ResponseFormat, Sampling, Usage

NETWORK_FILE_SYSTEMS = frozenset((
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "afs", "wekafs", "panfs", "orangefs",  # noqa: E501
    "pvfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.beegfs", "fuse.gcsfuse", "fuse.s3fs",
))  # fmt: skip
"""Types of file systems, as the system's table of mounts names them, on which SQLite's locks cannot be trusted."""

TRANSPORT_ONLY = frozenset(("prompt_cache_key", "user", "metadata", "safety_identifier", "priority"))
"""Fields of ``Sampling.extra`` that do not change the reply."""

FIELD = "assets.replies"
"""The config's key for the file."""

FLUSH_COUNT = 64
FLUSH_SECONDS = 1.0
"""Replies are written together: at the latest after so many, or at the first use so many seconds after the last
write.
"""

_TABLE = "CREATE TABLE IF NOT EXISTS replies (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"


@record
class StoredReply:
    """What is kept of a reply."""

    text: str
    finish_reason: str
    model: str
    served_model: str | None
    response_id: str | None
    usage: Usage | None
    reasoning: str | None


def is_cacheable(request: ChatRequest) -> bool:
    """Tell whether equal calls may share a reply: temperature 0, or a numbered draw; an unset temperature counts as
    above 0.
    """
    return not request.fresh and (request.sampling.temperature == 0.0 or request.sample > 0)


def make_cache_seed(service: Service, engine: str, sampling: Sampling, response_format: ResponseFormat | None) -> bytes:
    """Return what calls of one kind share of the key: the service, every sampling field and the response format.

    Args:
        service: an external one counts by its URL too, a managed one by what it computes with.
        engine: name and version of the server's software, where known.
        sampling: without the fields of ``TRANSPORT_ONLY``.
        response_format: as requested.
    """
    extra = {name: value for name, value in (sampling.extra or {}).items() if name not in TRANSPORT_ONLY}
    # The order and the number of its replicas are not the service's identity, but where they stand is all that is known
    # of it.
    urls = sorted(service.base_urls) if service.mode == "external" else []
    base_url = urls[0] if len(urls) == 1 else urls or None
    sampled = replace(sampling, extra=extra)
    parts = [service.identity, base_url, engine, sampled, response_format]
    # Replies of this API that were kept before only its last message was read are not used again.
    return hashlib.sha256(encode_canonical([*parts, "last message"] if service.api == "responses" else parts)).digest()


def make_cache_key(seed: bytes, messages: bytes, sample: int) -> bytes:
    """Return the 32-byte key of one call; ``messages`` as ``encode_messages`` makes them."""
    return hashlib.sha256(b"%s%d\n%s" % (seed, sample, messages)).digest()


class ReplyCache(Closing):
    """The file; used from one thread. ``problem`` says why it is off, if it is.

    Raises:
        ConfigError: the file would lie on a network file system, or cannot be opened.
    """

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.monotonic, mounts: Path = Path("/proc/mounts")
    ) -> None:
        path = path.expanduser().absolute()
        kind = find_file_system(path, mounts)
        if kind in NETWORK_FILE_SYSTEMS:
            raise ConfigError(
                "the cache may not lie on a network file system: SQLite's locks do not hold there",
                field=FIELD,
                found=f"{path} ({kind})",
                allowed="a folder on a disk of this machine",
                remedy=f"set {FIELD}=… to a file below /tmp or the node's scratch disk, or turn the service's "
                f"cache off",
            )
        self.problem: str | None = None
        self._clock, self._written = clock, clock()
        self._pending: dict[bytes, bytes] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(path, timeout=2.0, isolation_level=None)
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("PRAGMA synchronous=NORMAL")
            self._file.execute(_TABLE)
        except (OSError, sqlite3.Error) as error:
            raise ConfigError("the cache cannot be opened", field=FIELD, found=f"{path}: {error}") from None

    def get(self, key: bytes) -> StoredReply | None:
        """Return what is kept under ``key``, or None."""
        value = self._pending.get(key)
        if value is None and self.problem is None:
            try:
                row = self._file.execute("SELECT value FROM replies WHERE key = ?", (key,)).fetchone()
            except sqlite3.Error as error:
                self.problem = f"the cache is off: {error}"
                return None
            value = row[0] if row else None
        return None if value is None else _decode_reply(value)

    def put(self, key: bytes, reply: StoredReply) -> None:
        """Keep ``reply``; the first one kept under a key stays."""
        if self.problem is not None:
            return
        self._pending.setdefault(key, orjson.dumps(reply))
        if len(self._pending) >= FLUSH_COUNT or self._clock() - self._written >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting, in one transaction."""
        self._written = self._clock()
        if not self._pending or self.problem is not None:
            return
        try:
            self._file.execute("BEGIN IMMEDIATE")
            self._file.executemany("INSERT OR IGNORE INTO replies VALUES (?, ?)", self._pending.items())
            self._file.execute("COMMIT")
        except sqlite3.Error as error:
            self.problem = f"the cache is off: {error}"
            if self._file.in_transaction:
                self._file.rollback()
        self._pending.clear()

    def close(self) -> None:
        """Write what is waiting and close the file."""
        self.flush()
        self._file.close()


def _decode_reply(value: bytes) -> StoredReply | None:
    """Decode a stored reply by hand: this is in the path of every hit. None if it is not one of this version."""
    try:
        fields: Mapping[str, Any] = orjson.loads(value)
        usage = fields["usage"]
        if not isinstance(fields["text"], str):
            return None
        return StoredReply(**{**fields, "usage": Usage(**usage) if usage else None})
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None


def find_default_replies(mounts: Path = Path("/proc/mounts")) -> Path:
    """Return where replies are kept unless the config says: the user's cache folder, or, where that lies on a network,
    a folder of the user's own below the node's folder for temporary files.

    Raises:
        ConfigError: that folder is not ours alone.
    """
    usual = find_default_cache().parent / "replies.sqlite"
    if find_file_system(usual, mounts) not in NETWORK_FILE_SYSTEMS:
        return usual
    folder = Path(tempfile.gettempdir()) / f"gavel-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise ConfigError("the cache cannot be opened", field=FIELD, found=f"{folder}: {error}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise ConfigError(
            "this folder can be written by others",
            field=FIELD,
            found=str(folder),
            remedy=f"remove it, or set {FIELD}=… to a file",
        )
    return folder / "replies.sqlite"


def find_file_system(path: Path, mounts: Path) -> str:
    """Return the type of the file system that ``path`` lies on, by the table of mounts; empty if there is no such
    table.
    """
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    entries = [(line.split(" ")[1].replace("\\040", " "), line.split(" ")[2]) for line in lines if line.count(" ") >= 2]
    resolved = path.resolve()
    fitting = [
        (len(point), kind) for point, kind in entries if resolved == Path(point) or Path(point) in resolved.parents
    ]
    return (
        max(reversed(fitting), key=lambda item: item[0])[1] if fitting else ""
    )  # the last one mounted on a point counts
