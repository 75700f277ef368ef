"""What `make demo` prints: one line before the long installation, and none of pip's own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ALONE = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
"""So that a make that runs these tests does not speak through the one that is tested."""


pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def _python(folder: Path, version: tuple[int, int]) -> Path:
    """An interpreter that says it is of this version, writes down all that it is asked besides, and does none of it."""
    path = folder / f"python{version[0]}.{version[1]}"
    path.write_text(
        f'#!/bin/sh\ncase "$1" in\n--version) echo Python {version[0]}.{version[1]}.0;;\n'
        f'-c) exec {sys.executable} -c "import sys; sys.version_info = ({version[0]}, {version[1]}, 0); '
        f'exec(sys.argv[1])" "$2";;\n'
        f'*) echo "$@" >> {folder / "asked"}; exit 1;;\nesac\n'
    )
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("target", "version", "said"),
    [
        ("demo", (3, 13), "make demo needs Python 3.11"),
        ("demo", (3, 10), "make demo needs Python 3.11"),
        ("test", (3, 10), "gavel needs Python 3.11, 3.12 or 3.13"),
        ("test", (3, 14), "gavel needs Python 3.11, 3.12 or 3.13"),
    ],
)
def test_a_python_that_does_not_fit_is_refused_before_anything_is_made(
    target: str, version: tuple[int, int], said: str, tmp_path: Path
) -> None:
    python, venv = _python(tmp_path, version), tmp_path / "venv"
    done = subprocess.run(
        ("make", target, f"VENV={venv}", f"PYTHON={python}"), cwd=ROOT, env=ALONE, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stdout.startswith(f"{said}"), done.stdout + done.stderr
    assert f"is Python {version[0]}.{version[1]}.0: make {target} PYTHON=python3.11" in done.stdout
    assert not venv.exists()
    assert not (tmp_path / "asked").exists()


def test_the_demo_ends_with_how_gavel_comes_onto_the_path(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    done = subprocess.run(
        ("make", "-n", "demo", f"VENV={venv}"), cwd=ROOT, env=ALONE, capture_output=True, text=True, check=True
    )
    last = done.stdout.strip().splitlines()[-1]
    found = subprocess.run(
        ("sh", "-c", last), capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}
    )
    assert f"source {venv}/bin/activate" in found.stdout


def test_a_python_that_fits_is_asked_for_the_environment(tmp_path: Path) -> None:
    python = _python(tmp_path, (3, 13))
    subprocess.run(
        ("make", "test", f"VENV={tmp_path / 'venv'}", f"PYTHON={python}"),
        cwd=ROOT,
        env=ALONE,
        capture_output=True,
        text=True,
    )
    assert (tmp_path / "asked").read_text().startswith(f"-m venv {tmp_path / 'venv'}")


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_installation_says_how_long_it_takes_and_pip_says_nothing(target: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ("make", "-n", target, f"VENV={tmp_path / 'venv'}"),
        cwd=ROOT,
        env=ALONE,
        capture_output=True,
        text=True,
        check=True,
    )
    commands = re.split(r"&&|\|\||[;{}\n]", done.stdout)
    installs = [command for command in commands if re.search(r"\bpip\b.* (un)?install\b", command)]
    assert len(installs) >= 4
    assert all("--quiet" in part for part in installs), installs
    assert "about 3.4 GB, 3 to 6 minutes, once" in done.stdout
