"""A verb handed to Slurm: a rollout as an array of shards and a merge, on a real Slurm of three nodes."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.judges.support import STRICT, knowing
from tests.support.fault_server import FaultServer
from tests.support.processes import wait_until
from tests.support.runs import arguments, gavel, reply, rows, write_tasks
from tests.support.slurm import Slurm

from gavel.launch.training.verb_jobs import FILE, read_jobs

pytestmark = pytest.mark.timeout(300)
ON_SLURM = ("cluster=slurm", "cluster.gpus_per_node=0", "cluster.time=null")


def facts(run: Path) -> list[tuple[str, int, str, float]]:
    found = [
        (row["task_id"], row["rollout_index"], row["outcome"]["label"], row["reward"]["value"])
        for row in rows(run, "results.jsonl")
    ]
    return sorted(found)


async def submit(slurm: Slurm, run: Path, tasks: Path, url: str, *words: str) -> tuple[Path, str]:
    """Submit a rollout; return the folder of its jobs and the newest one."""
    done = await gavel(*arguments(tasks, run, url), *ON_SLURM, *words, env={**os.environ, **slurm.environment})
    assert done.code == 0, done.err + done.out
    folder = run.with_name(f"{run.name}.jobs")
    found = read_jobs(folder)
    assert found is not None
    return folder, found.merge or found.job


def logs(folder: Path) -> str:
    return "\n".join(path.read_text() for path in sorted((folder / "logs").glob("*")))


async def test_eight_parts_of_which_one_is_killed_merge_into_the_whole_run(slurm: Slurm, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 64)
    async with FaultServer(reply=reply, latency=0.15) as server:
        assert (await gavel(*arguments(tasks, tmp_path / "whole", server.base_url))).code == 0
        words = ("shards=8", "concurrency=1")
        folder, _ = await submit(slurm, tmp_path / "run", tasks, server.base_url, *words)
        killed: list[int] = []

        def kill_one() -> bool:
            for line in slurm.queue():
                found = re.match(r"(\d+_(\d+)) RUNNING", line)
                path = folder / f"part-{found[2]}" / "results.jsonl" if found else None
                done = path.read_bytes().count(b"\n") if path is not None and path.is_file() else 0
                if found and done and not killed:
                    slurm.run("scontrol", "requeue", found[1])  # what the controller does when a node is lost
                    killed.append(done)
            return bool(killed)

        await asyncio.to_thread(wait_until, kill_one, 60, "a part that has rows")
        await asyncio.to_thread(wait_until, lambda: not slurm.queue(), 200, "the end of all jobs")
        assert facts(tmp_path / "run") == facts(tmp_path / "whole"), logs(folder)
        assert len(facts(tmp_path / "run")) == 64
    assert killed[0] < 8, "it went on from rows that were stored"
    shown = await gavel("status", str(folder), env={**os.environ, **slurm.environment})
    assert "part 8" in shown.out
    again = await gavel("verify", str(tmp_path / "run"))
    assert again.code == 0, again.out + again.err


async def test_a_single_job_of_any_verb_runs_as_it_would_here(slurm: Slurm, tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        tasks = write_tasks(tmp_path / "t.jsonl", 4)
        folder, _ = await submit(slurm, tmp_path / "run", tasks, server.base_url)
        twice = await gavel(
            *arguments(tasks, tmp_path / "run", server.base_url), *ON_SLURM, env={**os.environ, **slurm.environment}
        )
        await asyncio.to_thread(wait_until, lambda: not slurm.queue(), 100, "the end of the job")
        assert len(facts(tmp_path / "run")) == 4, logs(folder)
        assert twice.code in (0, 2)
        server.reply = knowing(STRICT, tmp_path)
        words = [word for word in arguments(tasks, tmp_path / "run", server.base_url) if "policy" not in word][3:]
        probe = await gavel(
            "probe", *words, f"run.dir={tmp_path / 'probe'}", f"certificates={tmp_path / 'c'}", *ON_SLURM,
            env={**os.environ, **slurm.environment},
        )  # fmt: skip
        assert probe.code == 0, probe.err
        await asyncio.to_thread(wait_until, lambda: not slurm.queue(), 100, "the end of the probe")
    assert list((tmp_path / "c").glob("*.json")), logs(tmp_path / "probe.jobs")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("shards=0",), "shards"),
        (("shards=2", "shard=1/2"), "shards"),
        (("cluster.partitions=x",), "partition"),
        (("polici=x",), "policy"),
    ],
)
async def test_what_does_not_fit_is_refused_before_anything_is_submitted(
    words: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 2)
    done = await gavel(*arguments(tasks, tmp_path / "run", "http://127.0.0.1:1/v1"), *ON_SLURM, *words)
    assert done.code == 2
    assert told in done.err
    assert sorted(tmp_path.iterdir()) == [tasks]


async def test_a_dry_run_shows_scripts_that_bash_accepts(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 2)
    words = [*arguments(tasks, tmp_path / "a run", "http://127.0.0.1:1/v1"), *ON_SLURM, "shards=3", "dry_run=true"]
    done = await gavel(*words)
    assert done.code == 0, done.err
    assert "#SBATCH --array=1-3" in done.out
    assert "shard=$part/3" in done.out
    script = done.out.partition("--- rollout.sbatch\n")[2].partition("--- merge.sbatch\n")[0]
    checked = await asyncio.to_thread(
        lambda: subprocess.run(["bash", "-n"], input=script.encode(), capture_output=True, check=False)
    )
    assert (checked.returncode, checked.stderr) == (0, b"")
    assert sorted(tmp_path.iterdir()) == [tasks]


async def test_without_slurm_it_says_so_and_the_script_is_there(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 2)
    env = {**os.environ, "PATH": str(tmp_path)}
    done = await gavel(*arguments(tasks, tmp_path / "run", "http://127.0.0.1:1/v1"), *ON_SLURM, env=env)
    assert done.code == 2
    assert "sbatch" in done.err
    assert (tmp_path / "run.jobs" / "rollout.sbatch").is_file()
    assert not (tmp_path / "run.jobs" / FILE).exists()
