"""A small process between us and a server: when we are gone, however we ended, it ends the server and all its
descendants.

Run as a script: ``python -I supervisor.py COMMAND…`` with a pipe to us as standard input. Only the standard library is
used, and nothing is forwarded. It exits with the server's code (128 + n if signal n killed it). It ends the tree when
the pipe closes, when its own parent changes, or on SIGTERM, SIGINT, SIGHUP: SIGTERM to every process, SIGKILL after
``GRACE_S``. When the server ends by itself, what it left behind is killed at once, so that the end is noticed at once.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

GRACE_S = 3.0
"""From SIGTERM to SIGKILL (judging.md, managed life cycle)."""
_KILL_BOUND_S = 1.5
"""How long a killed tree may take to vanish; a process in an uninterruptible wait of the kernel may take longer."""
_POLL_S = 0.05
_PARENT_CHECK_S = 0.5
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def _call_prctl(option: int, value: int) -> None:
    """Ask the kernel of Linux; elsewhere there is no such call, and process groups have to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _iter_parents() -> Iterator[tuple[int, int]]:
    """Yield (pid, parent's pid) of every process, zombies aside; nothing where there is no /proc."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):  # it ended meanwhile
            continue
        if state not in (b"Z", b"X"):
            yield int(entry.name), int(parent)


def find_descendants(root: int) -> list[int]:
    """Return the pids of all living descendants of ``root``, whatever group or session they are in."""
    children: dict[int, list[int]] = {}
    for pid, parent in _iter_parents():
        children.setdefault(parent, []).append(pid)
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def _send_signal(group: int, number: int) -> bool:
    """Send a signal to the server's group and every descendant; tell whether anything is left to send it to."""
    left = find_descendants(os.getpid())
    for pid in left:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return bool(left)
    return True


class _Tree:
    """The server and its descendants; ``code`` is set once the server itself ended."""

    def __init__(self, command: list[str]) -> None:
        self.code: int | None = None
        # A group of its own in our session: the terminal's signals do not reach it, and the session names the whole
        # tree.
        self.server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=lambda: _call_prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
        )

    def reap_children(self) -> None:
        """Collect every ended child, adopted ones too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.server.pid:
                code = os.waitstatus_to_exitcode(status)
                self.code = self.server.returncode = code if code >= 0 else 128 - code

    def end_tree(self, grace: float) -> None:
        """End the tree: SIGTERM, and SIGKILL once ``grace`` seconds are over."""
        kill_at = time.monotonic() + grace
        _send_signal(self.server.pid, signal.SIGTERM if grace else signal.SIGKILL)
        while time.monotonic() < kill_at + _KILL_BOUND_S:
            self.reap_children()
            number = 0 if time.monotonic() < kill_at else signal.SIGKILL
            if not _send_signal(self.server.pid, number):
                return
            time.sleep(_POLL_S)


def _wait_end(tree: _Tree, pipe: int, wakeup: int) -> None:
    """Return when the server ended, the pipe closed, our parent changed, or a signal asked us to end."""
    parent = os.getppid()
    while tree.code is None and os.getppid() == parent:
        ready, _, _ = select.select([pipe, wakeup], [], [], _PARENT_CHECK_S)
        if pipe in ready and not os.read(pipe, 4096):
            return
        if wakeup in ready and any(number != signal.SIGCHLD for number in os.read(wakeup, 4096)):
            return
        tree.reap_children()


def main(command: list[str], pipe: int = 0) -> int:
    """Run ``command`` until it ends or we are gone; return its exit code."""
    _call_prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wakeup, write_end = os.pipe()
    os.set_blocking(write_end, False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    try:
        tree = _Tree(command)
    except OSError as failed:
        print(f"cannot start {command[0]}: {failed.strerror}", file=sys.stderr)  # noqa: T201 - this is the server's log
        return 127
    _wait_end(tree, pipe, wakeup)
    tree.end_tree(GRACE_S if tree.code is None else 0.0)
    return 1 if tree.code is None else tree.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
