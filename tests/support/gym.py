"""A real NeMo Gym for the tests that need one: the variable GAVEL_GYM_PYTHON names the interpreter of an environment
that has it.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

VARIABLE = "GAVEL_GYM_PYTHON"
PYTHON = os.environ.get(VARIABLE, "")
needs_gym = pytest.mark.skipif(
    not PYTHON, reason=f"{VARIABLE} does not name an interpreter with nemo-gym 0.7.0 installed"
)
_SERVING = re.compile(r"http://127\.0\.0\.1:(\d+)")


def gym(*words: str, cwd: Path, timeout: float = 280.0) -> str:
    """Run ``gym`` to its end; return what it printed."""
    done = subprocess.run(
        [str(Path(PYTHON).parent / "gym"), *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=gym_env(),
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout + done.stderr


def in_gym(code: str, *arguments: str, cwd: Path) -> Any:
    """Run Python code with Gym's interpreter; return the JSON on the last line that it prints."""
    done = subprocess.run(
        [PYTHON, "-c", code, *arguments], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return orjson.loads(done.stdout.strip().splitlines()[-1])


def gym_env() -> dict[str, str]:
    """The environment of Gym's processes: its own interpreter first."""
    return {**os.environ, "PATH": f"{Path(PYTHON).parent}{os.pathsep}{os.environ['PATH']}"}


@contextlib.contextmanager
def process(*words: str, ready: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> Iterator[list[str]]:
    """Run a command until it prints ``ready``, yield its lines; end it, and it alone, with TERM and at last with
    KILL.
    """
    lines: list[str] = []
    seen = threading.Event()
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=cwd, start_new_session=True
    ) as running:

        def read() -> None:
            assert running.stdout is not None
            for line in running.stdout:
                lines.append(line)
                if ready in line:
                    seen.set()
            seen.set()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            assert seen.wait(150), "".join(lines)[-4000:]
            assert any(ready in line for line in lines), "".join(lines)[-4000:]
            yield lines
        finally:
            running.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(30)
            running.kill()
            running.wait(30)


@contextlib.contextmanager
def serve(*words: str, cwd: Path) -> Iterator[int]:
    """Run ``gavel serve`` on a free port; yields the port."""
    command = (sys.executable, "-m", "gavel.launch.cli", "serve", "http.port=0", *words)
    with process(*command, ready="serving ", cwd=cwd) as lines:
        found = next(match for line in lines if (match := _SERVING.search(line)))
        yield int(found[1])


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, none where there is none."""
    return [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows, one a line."""
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path
