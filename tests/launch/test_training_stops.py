"""A stop that comes between two states of a training job is neither lost nor taken for a failure."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from gavel.launch.runs.training_plan import PLAN, RunPlan, read_plan, write_plan
from gavel.launch.training import attempts, job
from gavel.launch.training.attempts import Record, read_attempts

pytestmark = pytest.mark.timeout(60)
NEVER_ENDS = (sys.executable, "-c", "import time; time.sleep(3600)")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A training without a judge, whose trainer would have an hour to end."""
    plan = RunPlan(
        "0",
        0.0,
        "d",
        "external",
        "trainer.yaml",
        NEVER_ENDS,
        str(tmp_path),
        None,
        None,
        0,
        0,
        {},
        1.0,
        3600.0,
        1.0,
        judged=False,
    )
    write_plan(tmp_path / PLAN, plan)
    (tmp_path / "trainer.yaml").write_text("{}\n")
    (tmp_path / "logs").mkdir()
    return tmp_path


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_before_the_trainer_has_a_process_ends_it(
    number: signal.Signals, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = Record.record_training

    def training(record: Record) -> None:
        noted(record)
        os.kill(os.getpid(), number)

    monkeypatch.setattr(Record, "record_training", training)
    assert job.run_training(run) == 130
    (attempt,) = read_attempts(run)
    assert (attempt.state, attempt.trained) == ("interrupted", True)
    assert (run / attempts.NEXT).read_text() == "again\n"


def test_a_stop_in_the_moment_before_the_training_is_no_failure(run: Path) -> None:
    async def start() -> int:
        asked = asyncio.Event()
        asked.set()
        return await job._run_attempt(read_plan(run), run, Record(run), asked, follow=False)

    assert asyncio.run(start()) == 130
    (attempt,) = read_attempts(run)
    assert (attempt.state, attempt.trained) == ("interrupted", False)


def test_a_trainer_that_was_told_to_end_together_with_its_job_has_not_failed(run: Path) -> None:
    both = f"import os, signal, sys; os.kill({os.getpid()}, signal.SIGTERM); sys.exit(143)"
    plan = run / PLAN
    plan.write_text(plan.read_text().replace(NEVER_ENDS[2], both))
    assert job.run_training(run) == 130
    assert [attempt.state for attempt in read_attempts(run)] == ["interrupted"]
