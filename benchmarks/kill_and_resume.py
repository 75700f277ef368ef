"""Kills a 200-row run at random moments, resumes it and holds it against an unbroken one, as often as asked.

python -m benchmarks.kill_and_resume --kills 50
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from pathlib import Path

from tests.support.kills import ROWS, kill_and_resume, unbroken
from tests.support.runs import write_tasks


async def run(kills: int, seed: int) -> None:
    """Kill and resume ``kills`` runs; an assertion says what went wrong."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tasks = write_tasks(folder / "tasks.jsonl", ROWS)
        whole = await unbroken(folder / "whole", tasks)
        for number in range(kills):
            calls = await kill_and_resume(folder / f"run-{number}", tasks, whole, draw)
            print(f"{number + 1}/{kills}: killed after {calls} calls, resumed, equal to the unbroken run", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    asyncio.run(run(options.kills, options.seed))
