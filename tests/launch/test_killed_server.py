"""Rollouts with a server of our own: nothing of it is left when we are killed, and its death ends the run at once, with
its log.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from tests.support.fake_vllm import fake_python, model_directory
from tests.support.fault_server import FaultServer
from tests.support.processes import alive, wait_until
from tests.support.runs import JUDGE, STRICT, rows, source_row, start, write_tasks

from gavel.models.vllm.supervisor import find_descendants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
BOUND = 300.0


def replies(run: Path) -> int:
    """How many replies of the policy the journal holds."""
    path = run / "transcripts.jsonl"
    return path.read_bytes().count(b'"event":"reply"') if path.exists() else 0


def tree(process: asyncio.subprocess.Process) -> list[int]:
    """The processes of the managed server: supervisor, server, and what the server started."""
    found = find_descendants(process.pid)
    assert len(found) >= 2, "supervisor and server"
    return found


async def begin(words: list[str], there: Callable[[], bool], bound: float) -> asyncio.subprocess.Process:
    """Start the command and return once the run is ``there``."""
    process = await start(*words)
    try:
        await asyncio.to_thread(
            wait_until, lambda: there() or process.returncode is not None, bound, "the run's first rows"
        )
    except BaseException:
        process.kill()
        raise
    assert process.returncode is None, b"".join(await process.communicate()).decode()
    return process


async def kill_the_server(process: asyncio.subprocess.Process, bound: float) -> tuple[int, str, float]:
    """Kill the server below ``process``; return the exit code, what was said, and the seconds until the end."""
    supervisor, *rest = tree(process)
    server = find_descendants(supervisor)[0]
    began = time.monotonic()
    os.kill(server, signal.SIGKILL)
    out, err = await asyncio.wait_for(process.communicate(), bound)
    took = time.monotonic() - began
    await asyncio.to_thread(
        wait_until, lambda: not any(map(alive, [supervisor, *rest])), 5.0, "the end of every process"
    )
    assert process.returncode is not None
    return process.returncode, out.decode() + err.decode(), took


def check_death(code: int, said: str, service: str, log: Path) -> None:
    assert code == 4, said
    assert f"The server of service {service} was killed by SIGKILL (exit code 137)" in said
    assert f"The end of its log {log}" in said
    assert "stopped: the server of service" in said
    assert "Traceback" not in said


async def test_a_policys_server_that_dies_ends_the_run_at_once_and_leaves_the_rest_to_resume(tmp_path: Path) -> None:
    python, model = fake_python(tmp_path / "bin"), model_directory(tmp_path / "model")
    lines = [source_row(number) for number in range(12)]
    for row in lines[6:8]:  # the fake answers these after a minute: they are in flight when it dies
        row["responses_create_params"]["input"][-1]["content"] = "slow"
    tasks, run = tmp_path / "t.jsonl", tmp_path / "run"
    tasks.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in lines))
    async with FaultServer(reply=lambda body: "INCORRECT") as judge:
        words = [
            "rollout",
            f"run.dir={run}",
            f"tasks.path={tasks}",
            "env=abstention",
            STRICT,
            "policy=smollm2",
            f"policy.python={python}",
            f"policy.model={model}",
            "judge=external",
            f"judge.base_url={judge.base_url}",
            f"judge.model={JUDGE}",
            "concurrency=2",
        ]
        log = run / "logs" / "policy.log"
        process = await begin(words, lambda: log.exists() and log.read_bytes().count(b"slow: came in") == 2, 60.0)
        code, said, took = await kill_the_server(process, 30.0)
    check_death(code, said, "policy", log)
    assert took < 10.0
    assert "INFO Starting to load model" in said, "the log's end is shown"
    failed = rows(run, "errors.jsonl")
    assert len(rows(run)) == 6
    assert [row["outcome"]["failure"]["kind"] for row in failed] == [
        "transport_unreachable"
    ] * 2  # in flight; the others are not begun
    assert all(
        "was killed by SIGKILL" in row["outcome"]["failure"]["reason"] and row["reward"] is None for row in failed
    )


@pytest.mark.vllm
async def test_a_real_server_outlives_neither_our_sigkill_nor_goes_unnoticed_when_it_is_killed(
    tmp_path: Path, vllm_python: str
) -> None:
    run = tmp_path / "run"
    words = [
        "rollout",
        "experiment=demo",
        f"run.dir={run}",
        f"tasks.path={write_tasks(tmp_path / 't.jsonl', 400)}",
        f"policy.python={vllm_python}",
        f"judge.python={vllm_python}",
        "concurrency=4",
        "failure.max_ungraded_fraction=1.0",
    ]
    process = await begin(words, lambda: replies(run) >= 2, BOUND)
    running = tree(process)
    assert len(running) >= 3, "supervisor, server and engine"
    process.kill()
    await process.communicate()
    await asyncio.to_thread(wait_until, lambda: not any(map(alive, running)), 5.0, "the end of every process")

    kept = replies(run)
    process = await begin(
        words, lambda: replies(run) >= kept + 2, BOUND
    )  # the same run goes on, with a server of its own
    code, said, took = await kill_the_server(process, 60.0)
    check_death(code, said, "policy+judge", run / "logs" / "policy+judge.log")
    assert took < 20.0
    assert "Application startup complete" in said, "the log's end is shown"
    assert all(row["reward"] is None for row in rows(run, "errors.jsonl"))
    assert {row["outcome"]["failure"]["kind"] for row in rows(run, "errors.jsonl")} <= {"transport_unreachable"}
