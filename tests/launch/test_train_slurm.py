"""Training jobs against a real Slurm of two nodes: the judge on one part of a job, a stand-in for the trainer on the other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.processes import matching, wait_until
from tests.support.slurm import Slurm
from tests.support.training import COMMON, ROOT, gavel, judge_words

from gavel.launch.attempts import read_attempts
from gavel.launch.sweep_index import read_index

pytestmark = pytest.mark.timeout(240)
HET = ("cluster=slurm", "cluster.gpus_per_node=8", "placement.mode=het", "cluster.time=null")
LONG = "trainer.overrides={steps: 1000, pause: 0.2}"


def submit(slurm: Slurm, folder: Path, *words: str) -> tuple[Path, str]:
    """Submit a run with its judge in a part of its own; return its folder and job."""
    run = folder / "run"
    done = gavel(["train", *COMMON, *HET, *judge_words(folder), f"run.dir={run}", *words], folder, slurm.environment)
    assert done.returncode == 0, done.stderr + done.stdout
    return run, json.loads((run / "job.json").read_text())["job"]


def log_of(run: Path, number: int = 1) -> str:
    path = run / "logs" / f"trainer-{number}.log"
    return path.read_text() if path.exists() else ""


def wait_for_end(slurm: Slurm, timeout: float = 90) -> float:
    return wait_until(lambda: not slurm.queue(), timeout, "an empty queue")


def begin_again_at_once(slurm: Slurm, job: str) -> None:
    """Slurm lets a requeued job wait for two minutes; ask it not to. It refuses one that comes back within the second in which its
    old credential was revoked, so three seconds are left to it."""
    wait_until(lambda: slurm.show(job).get("Restarts", "0") != "0" and slurm.show(job)["JobState"] == "PENDING", 60, "the requeue")
    requeued = time.monotonic()

    def running() -> bool:
        for part in (job, str(int(job) + 1)) if time.monotonic() - requeued > 3 else ():
            slurm.run("scontrol", "update", f"JobId={part}", "StartTime=now")
        return slurm.show(job)["JobState"] == "RUNNING"

    wait_until(running, 60, "the second start")


def explain(run: Path) -> str:
    return "\n".join(f"--- {path}\n{path.read_text()}" for path in sorted((run / "logs").glob("*.out")))


def judge_pids(folder: Path) -> list[int]:
    return [pid for pid in matching("vllm.entrypoints") if str(folder) in Path(f"/proc/{pid}/cmdline").read_bytes().decode()]


def test_a_job_of_two_parts_trains_on_one_node_with_the_judge_of_the_other(slurm: Slurm, tmp_path: Path) -> None:
    run, job = submit(slurm, tmp_path)
    wait_for_end(slurm)
    assert [attempt.state for attempt in read_attempts(run)] == ["finished"], explain(run)
    assert slurm.show(job)["ExitCode"] == "0:0"
    assert "step 3: 2 of 2 graded" in log_of(run)
    assert "on n1" in log_of(run)
    assert (run / "judge" / "logs-0" / "judge.log").exists()
    assert judge_pids(tmp_path) == []
    shown = gavel(["status", str(run)], tmp_path, slurm.environment)
    assert "0 of 6 samples" in shown.stdout, shown.stdout + shown.stderr


def test_a_shell_that_exits_at_once_loses_nothing(slurm: Slurm, tmp_path: Path) -> None:
    words = [*COMMON, *HET, *judge_words(tmp_path), f"run.dir={tmp_path / 'run'}"]
    command = [sys.executable, "-m", "gavel.launch.cli", "train", *words]
    shell = subprocess.Popen(
        ["sh", "-c", 'setsid "$@" >out 2>&1 </dev/null &', "sh", *command], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), **slurm.environment},
    )  # fmt: skip
    assert shell.wait(5) == 0
    wait_until(lambda: (tmp_path / "run" / "job.json").exists(), 60, "the submission")
    wait_until(lambda: bool(read_attempts(tmp_path / "run")), 60, "the start")
    wait_for_end(slurm)
    assert [attempt.state for attempt in read_attempts(tmp_path / "run")] == ["finished"]


def test_a_judge_that_dies_fails_the_job_within_a_minute_and_empties_the_queue(slurm: Slurm, tmp_path: Path) -> None:
    run, job = submit(slurm, tmp_path, LONG)
    wait_until(lambda: "step 2:" in log_of(run), 60, "the second step")
    for pid in judge_pids(tmp_path):
        os.kill(pid, signal.SIGKILL)
    assert wait_for_end(slurm) < 60
    (attempt,) = read_attempts(run)
    assert (attempt.state, attempt.code) == ("failed", 4)
    assert "was killed by SIGKILL" in str(attempt.reason)
    assert "FAILED: the judge general is lost" in explain(run)
    assert slurm.show(job)["ExitCode"] == "4:0"
    assert matching(str(tmp_path)) == []


def test_a_judge_that_cannot_start_fails_the_job_with_its_reason(slurm: Slurm, tmp_path: Path) -> None:
    run, _ = submit(slurm, tmp_path, "judge.engine_args={behaviour: exit, code: 1}")
    wait_for_end(slurm)
    (attempt,) = read_attempts(run)
    assert attempt.state == "failed"
    assert "made of cheese" in str(attempt.reason)


def test_a_cancelled_job_leaves_no_process(slurm: Slurm, tmp_path: Path) -> None:
    run, job = submit(slurm, tmp_path, LONG)
    wait_until(lambda: "step 2:" in log_of(run), 60, "the second step")
    assert matching(str(tmp_path)) != []
    slurm.run("scancel", job)
    wait_for_end(slurm)
    wait_until(lambda: matching(str(tmp_path)) == [], 20, "the end of every process")
    assert slurm.show(job)["JobState"] == "CANCELLED"


def test_a_requeued_job_goes_on_in_the_same_folder(slurm: Slurm, tmp_path: Path) -> None:
    run, job = submit(slurm, tmp_path, "trainer.overrides={steps: 40, pause: 0.2}")
    wait_until(lambda: "step 5:" in log_of(run), 60, "the fifth step")
    slurm.run("scontrol", "requeue", job)
    begin_again_at_once(slurm, job)
    wait_until(lambda: log_of(run, 2) != "", 90, "the second start")
    wait_for_end(slurm)
    assert read_attempts(run)[-1].state == "finished"
    begun = int(log_of(run, 2).split("after step ")[1].split()[0])
    assert begun >= 5
    steps = [json.loads(line)["step"] for line in (run / "ledger" / "steps.jsonl").read_text().splitlines()]
    assert sorted(set(steps)) == list(range(1, 41))


def test_before_the_time_limit_the_trainer_is_told_and_the_job_begins_again(slurm: Slurm, tmp_path: Path) -> None:
    words = ("cluster.time='00:02:00'", "cluster.signal_seconds=95", "trainer.overrides={steps: 100, pause: 0.4}")
    run, job = submit(slurm, tmp_path, *words)
    wait_until(lambda: "SIGTERM: a checkpoint is there" in log_of(run), 100, "the signal")
    begin_again_at_once(slurm, job)
    wait_until(lambda: "starting after" in log_of(run, 2), 90, "the second start")
    assert read_attempts(run)[0].state == "interrupted"
    assert int(log_of(run, 2).split("after step ")[1].split()[0]) >= 1
    slurm.run("scancel", job)
    wait_for_end(slurm)


def test_four_points_of_a_sweep_share_one_judge_that_ends_with_them(slurm: Slurm, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    words = ["cluster=slurm", "cluster.gpus_per_node=0", "cluster.time=null", *judge_words(tmp_path), f"run.dir={sweep}"]
    done = gavel(["train", "-m", *COMMON[:-1], *words, "reward.abstain=0.3,0.5", "seed=1,2"], tmp_path, slurm.environment)
    assert done.returncode == 0, done.stderr + done.stdout
    points = read_index(sweep).points
    assert [point.overrides for point in points] == [
        ("reward.abstain=0.3", "seed=1"), ("reward.abstain=0.3", "seed=2"),
        ("reward.abstain=0.5", "seed=1"), ("reward.abstain=0.5", "seed=2"),
    ]  # fmt: skip
    began = time.monotonic()
    wait_for_end(slurm, 150)
    for point in points:
        run = sweep / point.name
        assert [attempt.state for attempt in read_attempts(run)] == ["finished"], explain(run)
        assert (run / "config.yaml").exists()
    (judge,) = sweep.glob("judge-*")
    assert [file.read_text().strip() for file in judge.glob("ended-*")] == ["0"]
    assert judge_pids(tmp_path) == []
    assert time.monotonic() - began < 150
    shown = gavel(["status", str(sweep)], tmp_path, slurm.environment)
    assert shown.stdout.count("finished") == 4, shown.stdout


@pytest.mark.vllm
@pytest.mark.timeout(900)
def test_a_real_model_judges_from_the_other_part_of_the_job(slurm: Slurm, tmp_path: Path, vllm_python: str) -> None:
    run = tmp_path / "run"
    words = [*COMMON, *HET, f"judge.python={vllm_python}", f"run.dir={run}", "trainer.overrides={steps: 1}"]
    done = gavel(["train", *words], tmp_path, slurm.environment)
    assert done.returncode == 0, done.stderr + done.stdout
    wait_for_end(slurm, 600)
    assert [attempt.state for attempt in read_attempts(run)] == ["finished"], explain(run)
    assert "step 1: 2 of 2 graded" in log_of(run)
    rows = [json.loads(line) for line in (run / "ledger" / "abstention.rows.jsonl").read_text().splitlines()]
    assert any(row["verdict"]["calls"] for row in rows), "the judge was asked"
