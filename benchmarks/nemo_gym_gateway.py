"""Rows a second that NeMo Gym 0.7.0 collects through our gateway: one policy call and one judge call a row, both from
an instant fake.

    GAVEL_GYM_PYTHON=/path/to/gym/bin/python python -m benchmarks.nemo_gym_gateway [--rows 1000] [--concurrency 64,0]

``gym eval run --no-serve`` is the client, 0 means no limit. The rate is the one its collector reports, without its
start and its metrics; the wall clock of the whole command stands beside it. Its own servers, all local and with the
same fake, gave 87 to 154 rows a second in the same measurement (policy, judge, agent and verifier in processes of their
own).
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

from tests.support import gym
from tests.support.fault_server import server_process
from tests.support.gym_models import abstention_row
from tests.support.runs import STRICT

_RATE = re.compile(r"(\d+)/\1 \[[0-9:<, ]*?([0-9.]+)(it/s|s/it)\]")


def main() -> int:
    """Measure, print a line for each concurrency, and return 0; 2 where there is no Gym."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--concurrency", default="64,0")
    options = parser.parse_args()
    if not gym.PYTHON:
        sys.stderr.write(f"set {gym.VARIABLE} to an interpreter that has nemo-gym 0.7.0\n")
        return 2
    with tempfile.TemporaryDirectory() as name, server_process("--reply", "tests.support.gym_models:judged") as url:
        folder = Path(name)
        gym.write_rows(folder / "rows.jsonl", [abstention_row(number) for number in range(options.rows)])
        words = (
            "env=abstention",
            STRICT,
            f"judge.base_url={url}",
            "judge.model=judge",
            "gym.play=true",
            f"policy.base_url={url}",
        )
        with gym.serve(
            *words, "policy.model=policy", "policy.max_in_flight=512", "judge.max_in_flight=512", cwd=folder
        ) as port:
            for concurrency in map(int, options.concurrency.split(",")):
                measure(folder, port, concurrency, options.rows)
    return 0


def measure(folder: Path, port: int, concurrency: int, rows: int) -> None:
    """Run Gym once and print what it did."""
    limit = ("--concurrency", str(concurrency)) if concurrency else ()
    begun = time.perf_counter()
    words = (
        "--agent",
        "gavel_abstention_agent",
        "--input",
        "rows.jsonl",
        "--output",
        f"out/{concurrency}.jsonl",
        *limit,
    )
    said = gym.gym(
        "eval", "run", "--no-serve", *words, "+head_server.host=127.0.0.1", f"+head_server.port={port}", cwd=folder
    )
    wall = time.perf_counter() - begun
    stored = len(gym.rows_of(folder / f"out/{concurrency}.jsonl"))
    found = _RATE.findall(said)[-1]
    rate = float(found[1]) if found[2] == "it/s" else 1 / float(found[1])
    print(
        f"concurrency {concurrency or 'unlimited'}: {rate:.0f} rows/s, {wall:.1f} s in all, {stored} of {rows} "
        f"rows graded"
    )


if __name__ == "__main__":
    sys.exit(main())
