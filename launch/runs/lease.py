"""One writer for a run folder: a lock that dies with its process, and a heartbeat for folders shared between hosts."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path

from gavel.models.closing import Closing
from gavel.models.codec import record
from gavel.models.errors import InputError
from gavel.models.files import open_own

HEARTBEAT_S = 10.0
"""Seconds between heartbeats."""
STALE_S = 90.0
"""A lease of another host is dead after this many seconds without a heartbeat; several beats may be lost to a slow file
system.
"""


class RunFolderError(InputError):
    """A run folder that cannot be used: in use, of another identity, or not a run."""


@record
class Lease:
    """Who writes a run folder: ``heartbeat`` in Unix seconds, ``job`` the Slurm job if there is one."""

    host: str
    pid: int
    job: str | None
    heartbeat: float

    @classmethod
    def make_own(cls) -> Lease:
        """Return the lease of this process, now."""
        return cls(socket.gethostname(), os.getpid(), os.environ.get("SLURM_JOB_ID"), time.time())


def find_holder(lease: Lease | None, now: float) -> str | None:
    """Say who holds a stored lease of another host, or None where it is free, released or dead.

    A heartbeat further in the future than clocks may differ is as dead as one in the past: a clock jumped.
    """
    if lease is None or lease.host == socket.gethostname() or abs(now - lease.heartbeat) > STALE_S:
        return None  # on our own host the lock alone decides
    return f"process {lease.pid} on {lease.host}" + (f", job {lease.job}" if lease.job else "")


class FolderLock(Closing):
    """An exclusive lock on a folder, held until ``close`` or the death of this process.

    Raises:
        RunFolderError: another process of this host holds it.
    """

    def __init__(self, folder: Path) -> None:
        self._fd = open_own(folder / ".lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(self._fd, 64, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            raise RunFolderError(
                "another process is writing this run",
                where=str(folder),
                found=f"process {owner}",
                remedy="wait for it, stop it, or name another folder with run.dir=…",
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def close(self) -> None:
        """Let others in; closing twice is allowed."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
