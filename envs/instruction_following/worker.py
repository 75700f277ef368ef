"""A process of its own for the fast checks: lists of jobs come in on stdin, lists of their verdicts go out on stdout;
it ends when stdin does.

Frames: 8 bytes of length (big-endian), then a pickle. The pipe is private to the parent, which has made both ends.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from typing import IO, Any

HEAD = 8


def write_frame(stream: IO[bytes], value: Any) -> None:
    """Send one value.

    Raises:
        OSError: the other end is gone.
    """
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(len(data).to_bytes(HEAD, "big") + data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> Any:
    """Receive one value.

    Raises:
        EOFError: the other end is gone.
    """
    head = stream.read(HEAD)
    size = int.from_bytes(head, "big")
    data = stream.read(size) if len(head) == HEAD else b""
    if len(head) < HEAD or len(data) < size:
        raise EOFError
    return pickle.loads(data)


def main() -> None:
    """Answer jobs until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent decides
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not end up between frames
    from gavel.envs.instruction_following.fast import (
        FastJob,
        run_fast,
    )  # after the signal is dealt with: this import takes a while

    while True:
        try:
            jobs = read_frame(sys.stdin.buffer)
        except EOFError:
            return
        try:
            write_frame(answers, [[tuple(verdict) for verdict in run_fast(FastJob(*job))] for job in jobs])
        except BrokenPipeError:
            return


if __name__ == "__main__":
    main()
