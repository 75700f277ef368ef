"""A judge that many jobs share, against a real Slurm: what becomes of it and of its runs when jobs are requeued, end or
lose a node.

Every story waits on Slurm's own clocks for most of its time, so they play side by side; each submits sweeps of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.preloaded import SOURCES
from tests.support.processes import matching, wait_until
from tests.support.slurm import Slurm
from tests.support.training import COMMON, gavel, judge_words

from gavel.launch.runs.sweep_index import read_index
from gavel.launch.training.attempts import read_attempts
from gavel.launch.training.judge.folder import LINGER_S

pytestmark = pytest.mark.timeout(240)
WORDS = ("cluster=slurm", "cluster.gpus_per_node=0", "cluster.time='01:00:00'")
HEALTHY = "cluster.directives=['--exclude=n3']"  # one story takes the third node away
HELD = "trainer.overrides={steps: 6, hold_at: 3}"


def sweep(slurm: Slurm, folder: Path, *words: str) -> tuple[list[Path], list[str], Path]:
    """Submit a sweep of two seeds; return its runs, their jobs, and the judge's folder."""
    place = folder / "sweep"
    command = [
        "train",
        "-m",
        *COMMON[:-1],
        *WORDS,
        *judge_words(folder),
        f"run.dir={place}",
        "seed=1,2",
        HEALTHY,
        *words,
    ]
    done = gavel(command, folder, slurm.environment)
    assert done.returncode == 0, done.stderr + done.stdout
    runs = [place / point.name for point in read_index(place).points]
    (judge,) = place.glob("judge-*")
    return runs, [job_of(run) for run in runs], judge


def job_of(folder: Path) -> str:
    return str(json.loads((folder / "job.json").read_text())["job"])


def log_of(run: Path, number: int = 1) -> str:
    path = run / "logs" / f"trainer-{number}.log"
    return path.read_text() if path.exists() else ""


def states(run: Path) -> list[str]:
    return [attempt.state for attempt in read_attempts(run)]


def reached(runs: Sequence[Path], step: int, timeout: float = 90) -> None:
    wait_until(
        lambda: all(any(f"step {step}:" in log_of(run, n) for n in range(1, 9)) for run in runs),
        timeout,
        f"step {step} of all",
    )


def queued(slurm: Slurm, *jobs: str) -> list[str]:
    return [line for line in slurm.queue() if line.partition(" ")[0] in jobs]


def explain(runs: Sequence[Path], judge: Path) -> str:
    files = [
        *(path for run in runs for path in sorted((run / "logs").glob("slurm-*.out"))),
        *sorted(judge.glob("slurm-*.out")),
    ]
    return "\n".join(f"--- {path}\n{path.read_text()}" for path in files)


def all_over(slurm: Slurm, folder: Path, runs: Sequence[Path], jobs: Sequence[str], judge: Path) -> None:
    """Wait until every run has done its last step, and see that nothing is left in the queue or running."""
    wait_until(
        lambda: all(states(run)[-1:] == ["finished"] for run in runs),
        150,
        f"the last step of all: {explain(runs, judge)}",
    )
    wait_until(lambda: not queued(slurm, *jobs, job_of(judge)), 60, "an empty queue")
    wait_until(lambda: matching(str(folder)) == [], 30, "the end of every process")
    for run in runs:
        steps = sorted({json.loads(line)["step"] for line in (run / "ledger" / "steps.jsonl").read_text().splitlines()})
        assert steps == [1, 2, 3, 4, 5, 6]
        assert "failed" not in states(run), explain(runs, judge)


def lost_by_all(runs: Sequence[Path]) -> None:
    """Wait until every point has noticed the loss: one that has not is free to finish, if its calls are answered."""
    wait_until(lambda: all(states(run)[:1] == ["lost its judge"] for run in runs), 60, "the loss of the judge")


def release(runs: Sequence[Path]) -> None:
    for run in runs:
        (run / "go").touch()


def requeued(slurm: Slurm, folder: Path) -> None:
    runs, jobs, judge = sweep(slurm, folder, HELD)
    reached(runs, 3)
    first = job_of(judge)
    slurm.run("scontrol", "requeuehold", ",".join(jobs))
    wait_until(lambda: all(states(run) == ["interrupted"] for run in runs), 30, "the end of the first starts")
    begun = (judge / "clock").stat().st_mtime
    wait_until(
        lambda: (judge / "clock").stat().st_mtime > begun + LINGER_S + 5, 60, "the judge to wait longer than for nobody"
    )
    slurm.run("scontrol", "release", ",".join(jobs))
    release(runs)
    all_over(slurm, folder, runs, jobs, judge)
    assert [states(run) for run in runs] == [["interrupted", "finished"]] * 2
    assert job_of(judge) == first, "the judge waited for both"
    assert (judge / f"ended-{first}").read_text().strip() == "0"


def renewed(slurm: Slurm, folder: Path) -> None:
    """The judge's time limit comes while both points train."""
    runs, jobs, judge = sweep(slurm, folder, HELD, "cluster.judge.time='02:00:00'", "cluster.judge.signal_seconds=60")
    reached(runs, 3)
    first = job_of(judge)
    assert slurm.show(first)["TimeLimit"] == "02:00:00"
    assert slurm.show(jobs[0])["TimeLimit"] == "01:00:00"
    slurm.run("scontrol", "update", f"JobId={first}", "TimeLimit=1")
    wait_until(lambda: slurm.show(first).get("Restarts") == "1", 60, "the judge's new beginning")
    slurm.run("scontrol", "update", f"JobId={first}", "TimeLimit=60")
    lost_by_all(runs)
    release(runs)
    all_over(slurm, folder, runs, jobs, judge)
    assert [states(run) for run in runs] == [["lost its judge", "finished"]] * 2, explain(runs, judge)
    assert job_of(judge) == first


def downed(slurm: Slurm, folder: Path) -> None:
    """The judge's node is lost; those of the points are healthy."""
    runs, jobs, judge = sweep(slurm, folder, HELD, "cluster.judge.directives=['--nodelist=n3']")
    reached(runs, 3)
    assert slurm.show(job_of(judge))["NodeList"] == "n3"
    slurm.run("scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=test")
    lost_by_all(runs)
    wait_until(
        lambda: all("PENDING" in line for line in queued(slurm, *jobs)), 30, "both points to give their nodes back"
    )
    slurm.run("scontrol", "update", "NodeName=n3", "State=RESUME")
    release(runs)
    all_over(slurm, folder, runs, jobs, judge)
    assert [states(run) for run in runs] == [["lost its judge", "finished"]] * 2, explain(runs, judge)


def cancelled(slurm: Slurm, folder: Path) -> None:
    """Somebody cancels the judge; the points start another."""
    runs, jobs, judge = sweep(slurm, folder, HELD)
    reached(runs, 3)
    first = job_of(judge)
    slurm.run("scancel", first)
    lost_by_all(runs)
    release(runs)
    wait_until(lambda: job_of(judge) != first, 60, "another judge")
    all_over(slurm, folder, runs, jobs, judge)
    assert [states(run) for run in runs] == [["lost its judge", "finished"]] * 2, explain(runs, judge)
    assert len(list(judge.glob("slurm-*.out"))) == 2, "one new judge, not one for each point"


def pending(slurm: Slurm, folder: Path) -> None:
    """The judge waits for its nodes; whoever waits for it holds none."""
    runs, jobs, judge = sweep(slurm, folder, "trainer.overrides={steps: 6}", "cluster.judge.directives=['--hold']")
    assert {slurm.show(job)["Reason"] for job in jobs} == {"Dependency"}
    slurm.run("scancel", jobs[1])
    words = ("env", f"PYTHONPATH={SOURCES}", "sbatch", "--parsable", str(runs[1] / "train.sbatch"))
    byhand = slurm.run(*words).stdout.strip()  # without the dependency
    wait_until(lambda: slurm.show(byhand).get("Restarts") == "1", 60, "the job to give its node back")
    wait_until(lambda: slurm.show(byhand)["Reason"] == "Dependency", 60, "it to wait for the judge")
    assert [states(run) for run in runs] == [[], []]
    slurm.run("scontrol", "release", job_of(judge))
    all_over(slurm, folder, runs, [jobs[0], byhand], judge)


STORIES: dict[str, Callable[[Slurm, Path], None]] = {
    "requeued": requeued,
    "renewed": renewed,
    "downed": downed,
    "cancelled": cancelled,
    "pending": pending,
}


@pytest.fixture(scope="module", autouse=True)
def stories(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    with ThreadPoolExecutor(len(STORIES)) as pool:
        yield {name: pool.submit(play, slurm, tmp_path_factory.mktemp(name)) for name, play in STORIES.items()}


def test_points_that_are_all_requeued_find_their_judge_waiting(stories: dict[str, Future[None]]) -> None:
    stories["requeued"].result(200)


def test_a_judge_begins_anew_before_its_time_is_over_and_its_points_with_it(stories: dict[str, Future[None]]) -> None:
    stories["renewed"].result(200)


def test_points_on_healthy_nodes_outlive_the_node_of_their_judge(stories: dict[str, Future[None]]) -> None:
    stories["downed"].result(200)


def test_points_whose_judge_is_gone_start_one_other(stories: dict[str, Future[None]]) -> None:
    stories["cancelled"].result(200)


def test_points_that_wait_for_their_judge_hold_no_node(stories: dict[str, Future[None]]) -> None:
    stories["pending"].result(200)
