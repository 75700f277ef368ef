"""What `make demo` prints: one line before the long installation, and none of pip's own."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_installation_says_how_long_it_takes_and_pip_says_nothing(target: str, tmp_path: Path) -> None:
    done = subprocess.run(("make", "-n", target, f"VENV={tmp_path / 'venv'}"), cwd=ROOT, capture_output=True, text=True, check=True)
    commands = re.split(r"&&|\|\||[;{}\n]", done.stdout)
    installs = [command for command in commands if re.search(r"\bpip\b.* (un)?install\b", command)]
    assert len(installs) >= 4
    assert all("--quiet" in part for part in installs), installs
    assert "about 3.4 GB, 3 to 6 minutes, once" in done.stdout
