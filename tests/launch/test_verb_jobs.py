"""A verb handed to Slurm: a rollout as an array of shards and a merge, on a real Slurm of three nodes."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.judges.support import STRICT
from tests.launch.test_probe_verb import all_knowing, too_long
from tests.support.fault_server import FaultServer
from tests.support.processes import matching, wait_until
from tests.support.runs import arguments, gavel, reply, rows, write_tasks
from tests.support.slurm import NODES, Slurm
from tests.support.training import COMMON, judge_words

from gavel.launch.training.verb_jobs import FILE, read_jobs

pytestmark = pytest.mark.timeout(300)
UNAUDITED = ("hygiene_required=false", "qualification.required=true")
ON_SLURM = ("cluster=slurm", "cluster.gpus_per_node=0", "cluster.time=null")


def facts(run: Path) -> list[tuple[str, int, str, float]]:
    found = [
        (row["task_id"], row["rollout_index"], row["outcome"]["label"], row["reward"]["value"])
        for row in rows(run, "results.jsonl")
    ]
    return sorted(found)


def managed(words: list[str], folder: Path) -> list[str]:
    """Return a rollout's words with a judge of ours, a fake vLLM, in place of the external one."""
    return [word for word in words if not word.startswith("judge")] + ["judge=smollm2", *judge_words(folder)]


async def submit(slurm: Slurm, words: list[str]) -> tuple[Path, str]:
    """Submit a rollout; return the folder of its jobs and the newest one."""
    run = Path(next(word for word in words if word.startswith("run.dir=")).partition("=")[2])
    done = await gavel(*words, *ON_SLURM, env={**os.environ, **slurm.environment})
    assert done.code == 0, done.err + done.out
    folder = run.with_name(f"{run.name}.jobs")
    found = read_jobs(folder)
    assert found is not None
    return folder, found.merge or found.job


def logs(folder: Path) -> str:
    return "\n".join(path.read_text() for path in sorted((folder / "logs").glob("*")))


async def test_eight_parts_of_which_one_is_killed_merge_into_the_whole_run(slurm: Slurm, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 64)
    async with FaultServer(reply=reply, latency=0.3) as server:
        whole = managed(arguments(tasks, tmp_path / "whole", server.base_url), tmp_path)
        assert (await gavel(*whole)).code == 0
        words = managed(arguments(tasks, tmp_path / "run", server.base_url), tmp_path)
        on_n1 = "cluster.judge.directives=['--nodelist=n1']"
        folder, _ = await submit(slurm, [*words, "shards=8", "concurrency=1", on_n1])

        def kill_node() -> bool:
            """Take a node away on which a part has stored rows."""
            for part in slurm.run("squeue", "-h", "-t", "RUNNING", "-o", "%K %N").stdout.splitlines():
                number, node = part.split()
                path = folder / f"part-{number}" / "results.jsonl"
                done = path.read_bytes().count(b"\n") if path.is_file() else 0
                if node != NODES[0] and done:
                    slurm.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
                    slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
                    return True
            return False

        await asyncio.to_thread(wait_until, kill_node, 60, "a part that has rows")
        await asyncio.to_thread(wait_until, lambda: not slurm.queue(), 200, "the end of all jobs")
        assert not [pid for pid in matching("vllm.entrypoints") if pid in matching(str(tmp_path))], (
            "the judge has ended"
        )
        assert facts(tmp_path / "run") == facts(tmp_path / "whole"), logs(folder)
        assert len(facts(tmp_path / "run")) == 64
        assert len(list((folder / "judge").glob("slurm-*.out"))) == 1, "one judge for all parts"
    assert re.search(r"[1-7] of 8 rows to do, [1-7] are graded", logs(folder)), "it went on from rows that were stored"
    shown = await gavel("status", str(folder), env={**os.environ, **slurm.environment})
    assert "part 8" in shown.out
    again = await gavel("verify", str(tmp_path / "run"))
    assert again.code == 0, again.out + again.err


async def test_a_single_job_of_any_verb_runs_as_it_would_here(slurm: Slurm, tmp_path: Path) -> None:
    async with FaultServer(reply=reply, choose=too_long) as server:
        tasks = write_tasks(tmp_path / "t.jsonl", 4)
        folder, _ = await submit(slurm, arguments(tasks, tmp_path / "run", server.base_url))
        twice = await gavel(
            *arguments(tasks, tmp_path / "run", server.base_url), *ON_SLURM, env={**os.environ, **slurm.environment}
        )
        await asyncio.to_thread(wait_until, lambda: not slurm.queue(), 100, "the end of the job")
        assert len(facts(tmp_path / "run")) == 4, logs(folder)
        assert twice.code in (0, 2)
        server.reply = all_knowing(tmp_path)
        words = [word for word in arguments(tasks, tmp_path / "run", server.base_url) if "policy" not in word][3:]
        words += ["judge.model=fake"]
        probe = await gavel(
            "probe", *words, f"run.dir={tmp_path / 'probe'}", f"certificates={tmp_path / 'c'}", *ON_SLURM,
            env={**os.environ, **slurm.environment},
        )  # fmt: skip
        assert probe.code == 0, probe.err
        train = ["train", *COMMON, *(word for word in words if word[:5] in ("env=a", STRICT[:5], "judge")), *UNAUDITED,
                 f"certificates={tmp_path / 'c'}", f"run.dir={tmp_path / 'train'}", "dry_run=true"]  # fmt: skip
        before = await gavel(*train)
        await asyncio.to_thread(wait_until, lambda: not slurm.queue(), 100, "the end of the probe")
        after = await gavel(*train)
    assert before.code == 2, before.out
    assert "never probed" in before.out + before.err
    assert after.code == 0, after.out + after.err + logs(tmp_path / "probe.jobs")


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


async def test_a_run_that_is_there_has_no_parts_and_shards_need_a_cluster(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        words = arguments(write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run", server.base_url)
        alone = await gavel(*words, "shards=2")
        assert (alone.code, "cluster=slurm" in alone.err) == (2, True), alone.err
        here = await gavel(*words, "cluster=local")
        assert here.code == 0, here.err
        parted = await gavel("rollout", str(tmp_path / "run"), *ON_SLURM, "shards=2")
    assert parted.code == 2
    assert "goes on as it is" in parted.err
    assert not (tmp_path / "run.jobs").exists()


async def test_a_dry_run_shows_scripts_that_bash_accepts(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 2)
    words = [*arguments(tasks, tmp_path / "a run", "http://127.0.0.1:1/v1"), *ON_SLURM, "shards=3", "dry_run=true"]
    done = await gavel(*words)
    assert done.code == 0, done.err
    assert "#SBATCH --array=1-3" in done.out
    assert "shard=$part/3" in done.out
    assert "dry_run=" not in done.out  # what is shown is what would run
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
