"""A command that cannot outlive us: it runs under the supervisor, which holds a pipe to us."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from gavel.models.vllm import supervisor

_SUPERVISOR = str(Path(supervisor.__file__).resolve())
_END_BOUND_S = supervisor.GRACE_S + 3.0
"""How long a supervisor may take to end its tree before we do it ourselves."""


class Supervised:
    """A supervised command. Closing the pipe ends it with all its descendants; so does our own end, however it comes.

    asyncio's own subprocesses are not used: cancelling the coroutine that starts one can hang, and some loops cannot
    start any.
    """

    def __init__(self, process: subprocess.Popen[bytes], pipe: IO[bytes]) -> None:
        self._process, self._pipe = process, pipe
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = loop.create_future()
        threading.Thread(
            target=_tell_end, args=(process, loop, self._ended), daemon=True, name=f"wait-{process.pid}"
        ).start()

    @classmethod
    def start(cls, command: Sequence[str], *, environment: Mapping[str, str], output: IO[bytes]) -> Supervised:
        """Start ``command`` from a running event loop; both its streams go to ``output``."""
        read_end, write_end = os.pipe()
        pipe = os.fdopen(write_end, "wb")  # not inherited by any child: it closes with us
        try:
            process = subprocess.Popen(
                (sys.executable, "-I", _SUPERVISOR, *command),
                stdin=read_end,
                stdout=output,
                stderr=output,
                env=dict(environment),
                start_new_session=True,
            )
        except BaseException:
            pipe.close()
            raise
        finally:
            os.close(read_end)
        return cls(process, pipe)

    @property
    def pid(self) -> int:
        """The supervisor's process id; it is also the session of the whole tree."""
        return self._process.pid

    async def wait(self) -> int:
        """Wait until the command ended; return its exit code, 128 + n if signal n killed it."""
        code = await asyncio.shield(self._ended)
        return code if code >= 0 else 128 - code

    def close(self) -> None:
        """Ask for the end, without waiting."""
        self._pipe.close()

    async def end_tree(self) -> None:
        """End the whole tree; return once nothing of it is left."""
        self.close()
        try:
            await asyncio.wait_for(self.wait(), _END_BOUND_S)
        except TimeoutError:
            self._process.kill()
            await self.wait()
        kill_session(self.pid)


def _tell_end(process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop, ended: asyncio.Future[int]) -> None:
    """Wait in a thread, and tell the loop, if it is still there."""
    code = process.wait()
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(lambda: None if ended.done() else ended.set_result(code))


def kill_session(session: int) -> None:
    """Kill what is left of a session whose leader is gone (its supervisor was killed); no effect where there is no
    /proc.
    """
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):  # it ended meanwhile
            if int((entry / "stat").read_bytes().rpartition(b")")[2].split()[3]) == session:
                os.kill(int(entry.name), signal.SIGKILL)


def describe_exit(code: int) -> str:
    """Say how a command ended, from its exit code."""
    with contextlib.suppress(ValueError):
        if code > 128:
            return f"was killed by {signal.Signals(code - 128).name} (exit code {code})"
    return f"ended with exit code {code}"
