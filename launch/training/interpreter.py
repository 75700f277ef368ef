"""Another interpreter, asked: what a trainer runs in is seldom the one that runs the command."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from gavel.models.codec import decode

_SECONDS = 60.0
_VERSIONS = (
    "import importlib.metadata as known, json, platform, sys\n"
    "found = {one.metadata['Name'].lower(): one.version for one in known.distributions() if one.metadata['Name']}\n"
    "wanted = {name: found[name] for name in sys.argv[1:] if name in found}\n"
    "print(json.dumps({'Python': platform.python_version(), **wanted}))\n"
)


@dataclass(frozen=True, slots=True)
class InterpreterAnswer:
    """What an interpreter wrote, and why it did not do as it was told; empty where it did."""

    out: str
    problem: str = ""


def ask_interpreter(
    python: str, words: Sequence[str], *, seconds: float = _SECONDS, variables: Mapping[str, str] | None = None
) -> InterpreterAnswer:
    """Let an interpreter run ``words``, with ``variables`` besides our own."""
    try:
        done = subprocess.run(
            (python, *words),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(variables or {})},
        )
    except OSError as failed:
        return InterpreterAnswer("", f"it cannot be started: {failed.strerror}")
    except subprocess.TimeoutExpired:
        return InterpreterAnswer("", f"it took more than {seconds:g} s")
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return InterpreterAnswer(done.stdout, last if done.returncode else "")


@cache
def read_versions(python: str, packages: tuple[str, ...]) -> Mapping[str, str]:
    """Return an interpreter's version, as ``Python``, and those of the packages that it has; ``start`` alone says why
    it does not answer. Asked once per process.
    """
    answered = ask_interpreter(python, ("-P", "-c", _VERSIONS, *packages))
    return {"start": answered.problem} if answered.problem else decode(dict[str, str], answered.out.encode())


def join_python_path(paths: Sequence[str]) -> str:
    """Return ``PYTHONPATH`` with folders before those that it has."""
    return os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
