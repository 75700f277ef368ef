"""Fixtures for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest_plugins = ["tests.support.vllm", "tests.support.slurm"]


@pytest.fixture(autouse=True, scope="session")
def _state_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep what commands store for their user out of the home of whoever runs the tests."""
    place = tmp_path_factory.mktemp("state")
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(place)
    yield place
    if before is None:
        del os.environ["XDG_STATE_HOME"]
    else:
        os.environ["XDG_STATE_HOME"] = before


LONG = (
    "test_train_slurm.py", "test_vllm_real.py", "test_pacing.py", "test_killed_server.py", "test_shared_judge_slurm.py",
    "test_real_model.py", "test_cpu_smoke.py", "test_environment_runs.py", "test_packaging.py", "test_train.py",
    "test_interruptions.py", "test_faults_end_to_end.py", "test_vllm_supervisor.py", "test_report_browser.py",
)  # fmt: skip
"""Files that take longest, waiting for servers and for Slurm: others fill the time when these begin first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long files first; with ``--no-loadscope-reorder`` the workers take files in this order."""
    place = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path.name, len(LONG)))
