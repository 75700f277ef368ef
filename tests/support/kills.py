"""One run that is killed at a random moment and resumed, held against an unbroken one."""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
from tests.support.fault_server import FaultServer
from tests.support.runs import JUDGE, POLICY, arguments, essence, gavel, number_of, reply, rows, start

ROWS = 200
"""Rows of each run."""
CALLS = ROWS + ROWS * 3 // 4 - 20
"""Calls after which a run is certainly not done: one of the policy a row, one of the judge but for [IDK], which a rule
decides.
"""


async def unbroken(folder: Path, tasks: Path) -> dict[tuple[str, int], Any]:
    """What an unbroken run of these tasks comes to."""
    async with FaultServer(reply=reply) as server:
        assert (await gavel(*arguments(tasks, folder, server.base_url, "report=false"))).code == 0
    return essence(folder)


def finished_calls(run: Path) -> set[tuple[str, int]]:
    """The calls a journal holds, as (model, number of the question); a torn last line does not count."""
    found = set()
    path = run / "transcripts.jsonl"
    for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else []:
        event = orjson.loads(line)
        model = {"reply": POLICY, "answer": JUDGE}.get(event["event"])
        if model:
            found.add((model, int(event["task_id"][2:])))
    return found


async def kill_and_resume(run: Path, tasks: Path, whole: dict[tuple[str, int], Any], draw: random.Random) -> int:
    """Kill a run once, resume it, and assert that nothing was lost, doubled or asked again; return the calls made
    before the kill.
    """
    async with FaultServer(reply=reply, latency=0.01) as server:
        words = arguments(tasks, run, server.base_url, "concurrency=16", "report=false")
        process = await start(*words)
        await server.until(draw.randrange(1, CALLS), timeout=30)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        finished, before = finished_calls(run), len(server.requests)
        done = await gavel(*words)
        assert done.code == 0, done.out + done.err
        asked = Counter((seen.body["model"], number_of(seen.body)) for seen in server.requests[before:])
    assert not finished & set(asked), "a finished call was asked again"
    assert not [call for call, count in asked.items() if count > 1], "a call was made twice"
    assert essence(run) == whole
    for name in ("transcripts.jsonl", "results.jsonl", "errors.jsonl", "inputs.jsonl"):
        rows(run, name)  # every line is whole
    return before
