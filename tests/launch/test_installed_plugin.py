"""An installed plugin of somebody else's breaks no test of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from gavel.envs.plugins import GROUP
from gavel.launch.cli.command_line import main

ROOT = Path(__file__).resolve().parents[2]


def test_the_catalogues_tests_pass_beside_a_plugin(tmp_path: Path) -> None:
    assert main(["new", "env", "stranger", f"into={tmp_path}"]) == 0
    info = tmp_path / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nstranger = stranger:PLUGIN\n")
    path = os.pathsep.join((str(tmp_path), str(ROOT / "src"), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/launch/test_catalogue.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
