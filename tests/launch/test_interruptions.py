"""A run that is killed, starved of its judge, crowded or out of disk loses nothing that was done."""

from __future__ import annotations

import asyncio
import random
import resource
import signal
import time
from pathlib import Path

import pytest
from tests.support.fault_server import FaultServer, server_process
from tests.support.kills import ROWS, finished_calls, kill_and_resume, unbroken
from tests.support.runs import POLICY, arguments, essence, gavel, number_of, reply, rows, start, write_tasks

KILLS = 5


async def test_sigkill_at_any_moment_loses_no_finished_call_and_doubles_no_row(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", ROWS)
    whole = await unbroken(tmp_path / "whole", tasks)
    draw = random.Random(7)
    for kill in range(KILLS):
        await kill_and_resume(tmp_path / f"run-{kill}", tasks, whole, draw)


async def test_a_killed_judge_ends_the_run_within_a_minute_and_a_live_one_completes_it(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", ROWS)
    async with FaultServer(reply=reply, latency=0.02) as policy:
        with server_process("--reply", "tests.support.runs:reply", "--latency", "0.02") as judge:
            words = arguments(
                tasks, tmp_path / "run", policy.base_url, "concurrency=16", "judge.deadline=20", judge_url=judge
            )
            process = await start(*words)
            await policy.until(80, timeout=30)
        died = time.monotonic()
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert time.monotonic() - died < 60
        assert process.returncode == 4, out.decode() + err.decode()
        graded, errors = rows(tmp_path / "run"), rows(tmp_path / "run", "errors.jsonl")
        assert graded
        assert {row["task_id"] for row in graded} | {row["task_id"] for row in errors} == {
            f"q-{n}" for n in range(ROWS)
        }
        assert len(graded) + len(errors) == ROWS
        assert all(row["reward"] is None and row["outcome"]["failure"]["kind"] for row in errors)
        replied = {number for model, number in finished_calls(tmp_path / "run") if model == POLICY}
        before = len(policy.requests)
        async with FaultServer(reply=reply) as alive:
            again = await gavel(*arguments(tasks, tmp_path / "run", policy.base_url, judge_url=alive.base_url))
            assert again.code == 0, again.out
            owed = set(range(ROWS)) - {int(row["task_id"][2:]) for row in graded}
            assert sorted(number_of(seen.body) for seen in alive.requests) == sorted(
                n for n in owed if n % 4 != 2
            )  # [IDK] is a rule's
        asked = {number_of(seen.body) for seen in policy.requests[before:]}
        assert asked == set(range(ROWS)) - replied
    assert len(essence(tmp_path / "run")) == ROWS


async def test_a_second_writer_is_refused_while_the_first_lives_and_admitted_after_it_died(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 50)
    async with FaultServer(reply=reply, latency=0.2) as server:
        words = arguments(tasks, tmp_path / "run", server.base_url, "concurrency=2")
        first = await start(*words)
        await server.until(3, timeout=30)
        second = await gavel(*words)
        assert second.code == 2
        assert "another process is writing this run" in second.err
        assert f"process {first.pid}" in second.err
        first.send_signal(signal.SIGKILL)
        await first.wait()
        server.latency = 0.0
        assert (await gavel(*words)).code == 0
    assert len(essence(tmp_path / "run")) == 50


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupt_ends_with_130_and_leaves_no_row_for_what_was_running(
    tmp_path: Path, stop: signal.Signals
) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 60)
    async with FaultServer(reply=reply, latency=0.05) as server:
        words = arguments(tasks, tmp_path / "run", server.base_url, "concurrency=4")
        process = await start(*words)
        await server.until(30, timeout=30)
        process.send_signal(stop)
        out, err = await asyncio.wait_for(process.communicate(), 20)
        assert process.returncode == 130, out.decode() + err.decode()
        assert rows(tmp_path / "run", "errors.jsonl") == []
        assert b"Traceback" not in err
        server.latency = 0.0
        assert (await gavel(*words)).code == 0
    assert len(essence(tmp_path / "run")) == 60


async def test_a_full_disk_stops_the_run_and_keeps_every_row_before(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 60)

    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    async with FaultServer(reply=reply) as server:
        words = arguments(tasks, tmp_path / "run", server.base_url, "concurrency=4")
        full = await gavel(*words, preexec_fn=no_room)
        assert full.code == 4, full.out + full.err
        assert "could not be written" in full.err
        assert "run the same command again" in full.err
        kept = rows(tmp_path / "run")
        done = await gavel(*words)
        assert done.code == 0, done.out + done.err
    found = rows(tmp_path / "run")
    assert found[: len(kept)] == kept
    assert len(essence(tmp_path / "run")) == 60
