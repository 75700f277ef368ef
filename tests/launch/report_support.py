"""Runs for the tests of reports: a hostile policy, a judge that fails now and then, and runs of any size made from
stored rows.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
from tests.support.fault_server import FaultServer
from tests.support.runs import JUDGE, POLICY, arguments, gavel, number_of, source_row

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)><!--<script>\u2028"
"""What a policy might say to run a script in a report."""
HOSTILE_ID = 'q-<img src=x onerror="alert(3)">-1'


def hostile_reply(body: dict[str, Any]) -> str:
    """By the number: right; hostile and wrong; abstaining; wrong, with a judge that refuses to judge."""
    number = number_of(body)
    if body["model"] == POLICY:
        return (
            f"\\boxed{{A place called Town {number}}}",
            f"{HOSTILE}\\boxed{{Village}}",
            "\\boxed{[IDK]}",
            "\\boxed{Hamlet}",
        )[number % 4]
    return ("CORRECT", "INCORRECT", "NOT_ATTEMPTED", f"I would rather not say {HOSTILE}")[number % 4]


async def hostile_run(folder: Path, count: int = 12) -> Path:
    """Make a run of ``count`` tasks: of four, one correct, one incorrect, one abstained, one ungraded; and one skipped
    row.
    """
    tasks = folder / "tasks.jsonl"
    rows = [source_row(number, **({"id": HOSTILE_ID} if number == 1 else {})) for number in range(count)]
    tasks.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in [*rows, {"id": "bad", "question": 3}]))
    async with FaultServer(reply=hostile_reply) as server:
        done = await gavel(*arguments(tasks, folder / "run", server.base_url, "failure.max_ungraded_fraction=1.0"))
    assert done.code == 3, done.out + done.err
    return folder / "run"


def enlarge(run: Path, into: Path, count: int) -> Path:
    """Make a run of ``count`` rows out of the graded ones of another."""
    into.mkdir()
    for name in ("config.yaml", "manifest.json"):
        (into / name).write_bytes((run / name).read_bytes())
    lines = [orjson.loads(line) for line in (run / "results.jsonl").read_bytes().splitlines()]
    with (into / "results.jsonl").open("wb") as results:
        for number in range(count):
            row = {**lines[number % len(lines)], "task_id": f"row-{number}"}
            row["metadata"] = {**row["metadata"], "domain": ("law", "health", "software")[number % 3]}
            results.write(orjson.dumps(row) + b"\n")
    return into


def blocks(page: str) -> dict[str, Any]:
    """The data in a page, by its id."""
    found = re.findall(r'<script type="application/json" id="([^"]+)">(.*?)</script>', page, re.DOTALL)
    return {name: orjson.loads(text) for name, text in found}


__all__ = ["HOSTILE", "HOSTILE_ID", "JUDGE", "blocks", "enlarge", "hostile_reply", "hostile_run"]
