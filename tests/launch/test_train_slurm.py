"""Training jobs against a real Slurm of two nodes: the judge on one part of a job, a stand-in for the trainer on the
other.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.preloaded import SOURCES
from tests.support.processes import matching, wait_until
from tests.support.slurm import Slurm
from tests.support.training import COMMON, gavel, judge_words

from gavel.launch.runs.sweep_index import read_index
from gavel.launch.training.attempts import read_attempts

pytestmark = pytest.mark.timeout(240)
HET = (
    "cluster=slurm",
    "cluster.gpus_per_node=2",
    "placement.mode=het",
    "cluster.time=null",
)  # four such parts fit a node at once
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


def queued(slurm: Slurm, *jobs: str) -> list[str]:
    """Return the lines of the queue that are parts of these jobs."""
    return [line for line in slurm.queue() if line.partition(" ")[0].partition("+")[0] in jobs]


def wait_for_end(slurm: Slurm, *jobs: str, timeout: float = 90) -> float:
    return wait_until(lambda: not queued(slurm, *jobs), timeout, "the end of its jobs")


def limit_soon(slurm: Slurm, job: str) -> None:
    """Bring the end of a job so near that its signal is due; Slurm looks every 30 s for jobs whose signal is."""
    done = slurm.run("scontrol", "update", f"JobId={job}", "TimeLimit=1")
    assert done.returncode == 0, done.stderr


def explain(run: Path) -> str:
    return "\n".join(f"--- {path}\n{path.read_text()}" for path in sorted((run / "logs").glob("*.out")))


def judge_pids(folder: Path) -> list[int]:
    return [
        pid for pid in matching("vllm.entrypoints") if str(folder) in Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    ]


def test_a_job_of_two_parts_trains_on_one_node_with_the_judge_of_the_other(slurm: Slurm, tmp_path: Path) -> None:
    run, job = submit(slurm, tmp_path)
    wait_for_end(slurm, job)
    assert [attempt.state for attempt in read_attempts(run)] == ["finished"], explain(run)
    assert slurm.show(job)["ExitCode"] == "0:0"
    assert "step 3: 2 of 2 graded" in log_of(run)
    assert f"on {slurm.show(job)['NodeList']}, pid" in log_of(run)
    assert (run / "judge" / "logs-0" / "judge.log").exists()
    assert judge_pids(tmp_path) == []
    shown = gavel(["status", str(run)], tmp_path, slurm.environment)
    assert "0 of 6 samples" in shown.stdout, shown.stdout + shown.stderr


def test_a_run_with_any_name_is_found_in_the_queue_and_keeps_its_secrets(slurm: Slurm, tmp_path: Path) -> None:
    run, secret = tmp_path / "my run ünï 100%", "hunter2-" + "plum" * 5
    words = [
        "train",
        *COMMON,
        *HET,
        *judge_words(tmp_path),
        f"run.dir='{run}'",
        "trainer.overrides={steps: 3, hold_at: 1}",
    ]
    environment = {**slurm.environment, "PLANTED": secret}
    done = gavel(words, tmp_path, environment)
    assert done.returncode == 0, done.stderr + done.stdout
    job = json.loads((run / "job.json").read_text())["job"]
    assert [line.split(maxsplit=2)[2] for line in queued(slurm, job)] == [f"gavel-{run.name}"] * 2
    wait_until(lambda: "step 1:" in log_of(run), 60, "the first step")
    (run / "job.json").unlink()  # a submission that was killed before it could note the job
    again = gavel(words, tmp_path, environment)
    assert again.returncode == 2
    assert f"job {job} RUNNING" in again.stderr, again.stderr
    (run / "go").touch()
    wait_for_end(slurm, job)
    assert [attempt.state for attempt in read_attempts(run)] == ["finished"], explain(run)
    assert (run / "logs" / f"slurm-{job}.out").exists()
    hits = [path for path in tmp_path.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert hits == []


def test_a_job_that_slurm_refuses_is_told_in_its_words_and_can_be_submitted_later(slurm: Slurm, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["train", *COMMON, *HET, *judge_words(tmp_path), f"run.dir={run}", "trainer.overrides={steps: 1}"]
    refused = gavel([*words, "cluster.partition=nowhere"], tmp_path, slurm.environment)
    assert refused.returncode == 2
    assert "invalid partition specified: nowhere" in refused.stderr, refused.stderr
    assert not (run / "job.json").exists()
    assert "not begun" in gavel(["status", str(run)], tmp_path, slurm.environment).stdout
    accepted = gavel(words, tmp_path, slurm.environment)
    assert accepted.returncode == 0, accepted.stderr
    job = json.loads((run / "job.json").read_text())["job"]
    wait_for_end(slurm, job)
    assert [attempt.state for attempt in read_attempts(run)] == ["finished"], explain(run)


def test_a_shell_that_exits_at_once_loses_nothing(slurm: Slurm, tmp_path: Path) -> None:
    words = [*COMMON, *HET, *judge_words(tmp_path), f"run.dir={tmp_path / 'run'}"]
    command = [sys.executable, "-m", "gavel.launch.cli", "train", *words]
    shell = subprocess.Popen(
        ["sh", "-c", 'setsid "$@" >out 2>&1 </dev/null &', "sh", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": SOURCES, **slurm.environment},
    )
    assert shell.wait(5) == 0
    wait_until(lambda: (tmp_path / "run" / "job.json").exists(), 60, "the submission")
    wait_until(lambda: bool(read_attempts(tmp_path / "run")), 60, "the start")
    job = json.loads((tmp_path / "run" / "job.json").read_text())["job"]
    wait_for_end(slurm, job)
    assert [attempt.state for attempt in read_attempts(tmp_path / "run")] == ["finished"]


def test_a_judge_that_dies_fails_the_job_within_a_minute_and_empties_the_queue(slurm: Slurm, tmp_path: Path) -> None:
    run, job = submit(slurm, tmp_path, LONG)
    wait_until(lambda: "step 2:" in log_of(run), 60, "the second step")
    for pid in judge_pids(tmp_path):
        os.kill(pid, signal.SIGKILL)
    assert wait_for_end(slurm, job) < 60
    (attempt,) = read_attempts(run)
    assert (attempt.state, attempt.code) == ("failed", 4)
    assert "was killed by SIGKILL" in str(attempt.reason)
    assert "FAILED: the judge general is lost" in explain(run)
    assert slurm.show(job)["ExitCode"] == "4:0"
    assert matching(str(tmp_path)) == []


def test_a_judge_that_cannot_start_fails_the_job_with_its_reason(slurm: Slurm, tmp_path: Path) -> None:
    run, job = submit(slurm, tmp_path, "judge.engine_args={behaviour: exit, code: 1}")
    wait_for_end(slurm, job)
    (attempt,) = read_attempts(run)
    assert attempt.state == "failed"
    assert "made of cheese" in str(attempt.reason)


def test_a_judge_on_two_nodes_is_found_watched_and_ended_on_both(slurm: Slurm, tmp_path: Path) -> None:
    words = ("placement.nodes=2", "judge.replicas=2", "trainer.overrides={steps: 6, hold_at: 3}")
    run, job = submit(slurm, tmp_path, *words)
    wait_until(lambda: "step 3:" in log_of(run), 60, "the third step")
    ends = [json.loads(path.read_text()) for path in sorted((run / "judge").glob("endpoint-*.json"))]
    assert [end["node"] for end in ends] == [0, 1]
    (config,) = (run / "attempts").glob("1.trainer.yaml")
    urls = [url for end in ends for url in end["urls"]["general"]]
    assert len(set(urls)) == 2
    assert all(url in config.read_text() for url in urls), "the trainer is given both replicas"
    shown = gavel(["status", str(run)], tmp_path, slurm.environment).stdout
    assert "2 of 2 nodes, 2 of 2 replicas answer" in " ".join(shown.split()), shown
    os.kill(judge_pids(tmp_path)[0], signal.SIGKILL)
    wait_until(lambda: "is lost" in explain(run), 30, "one replica to be missed")
    (run / "go").touch()
    wait_for_end(slurm, job)
    assert [attempt.state for attempt in read_attempts(run)] == ["finished"], explain(run)
    assert judge_pids(tmp_path) == []
    assert {path.name for path in (run / "judge").glob("logs-*")} == {"logs-0", "logs-1"}


def test_a_cancelled_job_leaves_no_process(slurm: Slurm, tmp_path: Path) -> None:
    run, job = submit(slurm, tmp_path, LONG)
    wait_until(lambda: "step 2:" in log_of(run), 60, "the second step")
    assert matching(str(tmp_path)) != []
    slurm.run("scancel", job)
    wait_for_end(slurm, job)
    wait_until(lambda: matching(str(tmp_path)) == [], 20, "the end of every process")
    assert slurm.show(job)["JobState"] == "CANCELLED"


def requeued(slurm: Slurm, folder: Path) -> None:
    run, job = submit(slurm, folder, "trainer.overrides={steps: 6, hold_at: 3}")
    wait_until(lambda: "step 3:" in log_of(run), 90, "the third step")
    slurm.run("scontrol", "requeue", job)
    wait_until(lambda: read_attempts(run)[0].ended is not None, 30, "the end of the first start")
    (run / "go").touch()
    wait_until(lambda: log_of(run, 2) != "", 90, "the second start")
    wait_for_end(slurm, job)
    assert [attempt.state for attempt in read_attempts(run)] == ["interrupted", "finished"], explain(run)
    assert "starting after step 3" in log_of(run, 2)
    steps = [json.loads(line)["step"] for line in (run / "ledger" / "steps.jsonl").read_text().splitlines()]
    assert steps == [step for step in range(1, 7) for _ in range(2)], "each of the two tasks once a step"


def limited(slurm: Slurm, folder: Path) -> None:
    """Its time is over three times: once by the clock, then as that clock signals it.

    The last time it ends by itself, with code 0.
    """
    words = (
        "cluster.time='01:00:00'",
        "cluster.signal_seconds=60",
        "trainer.overrides={steps: 400, pause: 0.05, hold_at: 100, stop_at: 390}",
    )
    run, job = submit(slurm, folder, *words)
    wait_until(lambda: "step 2:" in log_of(run), 90, "the second step")
    limit_soon(slurm, job)
    wait_until(lambda: "SIGTERM: a checkpoint is there" in log_of(run), 60, "the signal")
    (run / "go").touch()  # held until now: the signal may come half a minute late, when all steps would be done
    slurm.run("scontrol", "update", f"JobId={job}", "TimeLimit=60")
    wait_until(lambda: "starting after" in log_of(run, 2), 90, "the second start")
    for number in (2, 3):
        wait_until(lambda number=number: "step " in log_of(run, number).partition("after step")[2], 90, "a step")  # type: ignore[misc]
        slurm.run("scancel", "--batch", "--signal=TERM", job)
        wait_until(lambda number=number: read_attempts(run)[number - 1].ended is not None, 30, "the end of a start")  # type: ignore[misc]
        wait_until(lambda number=number: "starting after" in log_of(run, number + 1), 90, "the next start")  # type: ignore[misc]
    wait_for_end(slurm, job, timeout=120)
    assert [attempt.state for attempt in read_attempts(run)] == ["interrupted"] * 4 + ["finished"], explain(run)
    assert slurm.show(job)["ExitCode"] == "0:0"
    steps = {json.loads(line)["step"] for line in (run / "ledger" / "steps.jsonl").read_text().splitlines()}
    assert steps == set(range(1, 401))


def stuck(slurm: Slurm, folder: Path) -> None:
    """A trainer that does no step and does not hear: its time is over three times."""
    run, job = submit(slurm, folder, "cluster.signal_seconds=30", "trainer.overrides={deaf: true}")
    for number in (1, 2, 3):
        wait_until(lambda number=number: "starting after step 0" in log_of(run, number), 90, "a start")  # type: ignore[misc]
        slurm.run("scancel", "--batch", "--signal=TERM", job)
        wait_until(lambda number=number: read_attempts(run)[number - 1].ended is not None, 30, "its end")  # type: ignore[misc]
    wait_for_end(slurm, job)
    last = read_attempts(run)[-1]
    assert [attempt.state for attempt in read_attempts(run)] == ["interrupted", "interrupted", "failed"], explain(run)
    assert str(last.reason).startswith("no new step in 3 starts (after step 0)")
    assert slurm.show(job)["ExitCode"] == "4:0"
    assert matching(str(folder)) == []
    shown = " ".join(gavel(["status", str(run)], folder, slurm.environment).stdout.split())
    assert "no new step in 3 starts" in shown, shown


def swept(slurm: Slurm, folder: Path) -> None:
    sweep = folder / "sweep"
    words = ["cluster=slurm", "cluster.gpus_per_node=0", "cluster.time=null", *judge_words(folder), f"run.dir={sweep}"]
    command = [
        "train",
        "-m",
        *COMMON[:-1],
        *words,
        "trainer.overrides={steps: 3, hold_at: 3}",
        "reward.abstain=0.3,0.5",
        "seed=1,2",
    ]
    for _ in range(
        2
    ):  # the second time, as after a submission that was interrupted: what is in the queue stays as it is
        done = gavel(command, folder, slurm.environment)
        assert done.returncode == 0, done.stderr + done.stdout
        assert "4 submitted" in done.stdout
    points = read_index(sweep).points
    assert [point.overrides for point in points] == [
        ("reward.abstain=0.3", "seed=1"),
        ("reward.abstain=0.3", "seed=2"),
        ("reward.abstain=0.5", "seed=1"),
        ("reward.abstain=0.5", "seed=2"),
    ]
    (judge,) = sweep.glob("judge-*")
    jobs = [
        json.loads((place / "job.json").read_text())["job"]
        for place in (judge, *(sweep / point.name for point in points))
    ]
    assert len(set(jobs)) == 5, "one judge, and a job for each point"
    for point in points:
        (sweep / point.name / "go").touch()
    wait_for_end(slurm, *jobs, timeout=150)
    for point in points:
        run = sweep / point.name
        assert [attempt.state for attempt in read_attempts(run)] == ["finished"], explain(run)
        assert (run / "config.yaml").exists()
    assert [file.read_text().strip() for file in judge.glob("ended-*")] == ["0"]
    assert judge_pids(folder) == []
    shown = gavel(["status", str(sweep)], folder, slurm.environment)
    assert shown.stdout.count("finished") == 4, shown.stdout


STORIES = {"requeued": requeued, "limited": limited, "stuck": stuck, "swept": swept}
"""What waits on Slurm's own clocks for most of its time: it plays while the other tests do."""


@pytest.fixture(scope="module", autouse=True)
def stories(
    slurm: Slurm, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[None]]]:
    """The stories that selected tests ask for, begun."""
    wanted = {name for item in request.session.items for name in STORIES if name in item.name}
    with ThreadPoolExecutor(len(STORIES)) as pool:
        yield {name: pool.submit(STORIES[name], slurm, tmp_path_factory.mktemp(name)) for name in sorted(wanted)}


def test_a_job_that_is_requeued_goes_on_in_the_same_folder(stories: dict[str, Future[None]]) -> None:
    stories["requeued"].result(200)


def test_a_job_whose_time_is_limited_three_times_is_told_before_each_end_and_reaches_its_last_step(
    stories: dict[str, Future[None]],
) -> None:
    stories["limited"].result(200)


def test_a_run_that_is_stuck_before_a_step_for_three_starts_has_failed_and_leaves_the_queue(
    stories: dict[str, Future[None]],
) -> None:
    stories["stuck"].result(200)


def test_four_points_that_are_swept_share_one_judge_that_ends_with_them(stories: dict[str, Future[None]]) -> None:
    stories["swept"].result(200)


@pytest.mark.vllm
@pytest.mark.timeout(900)
def test_a_real_model_judges_from_the_other_part_of_the_job(slurm: Slurm, tmp_path: Path, vllm_python: str) -> None:
    run = tmp_path / "run"
    words = [*COMMON, *HET, f"judge.python={vllm_python}", f"run.dir={run}", "trainer.overrides={steps: 1}"]
    done = gavel(["train", *words], tmp_path, slurm.environment)
    assert done.returncode == 0, done.stderr + done.stdout
    wait_for_end(slurm, json.loads((run / "job.json").read_text())["job"], timeout=600)
    assert [attempt.state for attempt in read_attempts(run)] == ["finished"], explain(run)
    assert "step 1: 2 of 2 graded" in log_of(run)
    rows = [json.loads(line) for line in (run / "ledger" / "abstention.rows.jsonl").read_text().splitlines()]
    assert any(row["verdict"]["calls"] for row in rows), "the judge was asked"
