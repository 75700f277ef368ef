"""A server with a quota of calls in each window of time, and a whole rollout against it.

python -m tests.support.quota --seconds 20 --hint        # 80 rows at concurrency 16 against 10 calls in 20 s; minutes
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.fault_server import FaultServer
from tests.support.faults import Fault
from tests.support.runs import Done, arguments, gavel, reply, write_tasks


@dataclass
class Quota:
    """Chooses 429 for what is over ``calls`` in a window of ``seconds``, with ``Retry-After`` where ``hint``."""

    calls: int
    seconds: float
    hint: bool
    refused: int = 0
    _windows: dict[int, int] = field(default_factory=dict)

    def __call__(self, body: dict[str, Any], n: int) -> Fault | None:
        del body, n
        now = time.monotonic()
        window = int(now // self.seconds)
        self._windows[window] = self._windows.get(window, 0) + 1
        if self._windows[window] <= self.calls:
            return None
        self.refused += 1
        left = (window + 1) * self.seconds - now
        return Fault("429", retry_after=str(math.ceil(100 * left) / 100)) if self.hint else Fault("429")


async def roll_out(folder: Path, quota: Quota, count: int, *more: str, timeout: float) -> Done:
    """Run ``count`` rows at concurrency 16, policy and judge under one quota."""
    tasks = write_tasks(folder / "t.jsonl", count)
    async with FaultServer(reply=reply, choose=quota, record=False) as server:
        return await gavel(*arguments(tasks, folder / "run", server.base_url, "concurrency=16", *more), timeout=timeout)


def main() -> int:
    """Run once and show how it went."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--rows", type=int, default=80)
    parser.add_argument("--hint", action="store_true", help="send Retry-After")
    options = parser.parse_args()
    quota = Quota(options.calls, options.seconds, options.hint)
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        done = asyncio.run(roll_out(Path(folder), quota, options.rows, timeout=3600.0))
    sys.stdout.write(
        f"{done.out}{done.err}\nexit {done.code}, {quota.refused} refusals, {time.monotonic() - began:.0f} s\n"
    )
    return done.code


if __name__ == "__main__":
    sys.exit(main())
