"""Looking at processes: which of a session are left, and waiting for something with a bound."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path


def alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie does not."""
    try:
        return (Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]) not in (b"Z", b"X")
    except OSError:
        return False


def matching(text: str) -> list[int]:
    """Return the pids of running processes whose command line or environment holds ``text``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            told = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if text.encode() in told and alive(int(entry.name)):
            found.append(int(entry.name))
    return found


def wait_until(condition: Callable[[], bool], timeout: float, what: str = "the condition") -> float:
    """Poll until ``condition`` holds; return the seconds it took, fail after ``timeout``."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout:
            raise AssertionError(f"{what} did not come true within {timeout} s")
        time.sleep(0.02)
    return time.monotonic() - began


def run_forked(work: Callable[[], int], seconds: int = 60) -> int:
    """Run ``work`` in a child forked from this process and return its exit code; one that raises gives 70, one that
    hangs is ended.
    """
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        code = 70
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
