"""Rows graded per second by one process, against an instant local model in a process of its own.

    python benchmarks/rollout_throughput.py            # table; exits 1 where a bar is missed
    python benchmarks/rollout_throughput.py --tasks 200

Policy and judge are the same instant server. ``concurrency`` is what is varied: a service's own ``max_in_flight`` stays
at its default of 64, but for one figure in which every row has connections of its own, most of them opened within the
first half of the run. Each figure is of one whole ``gavel rollout`` in a fresh process: the rate is rows over the
seconds from the first row's start to the last row's end; start-up is measured apart.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import orjson

HERE = Path(__file__).parent
BARS = {"rate at 64 (rows/s)": 1500.0, "rate at 512 over rate at 64": 0.8, "share of the ideal rate at 100 ms": 0.9}


def make_tasks(path: Path, count: int) -> None:
    """Write ``count`` distinct source rows, as long as real ones."""
    system = (
        "You will be given a question. Answer it shortly.\nPut the final answer into \\boxed{}; \\boxed{[IDK]} "
        "if you are unsure."
    )
    with path.open("wb") as file:
        for number in range(count):
            question = (
                f"Which town lies next to the mountain number {number} of the long list that the old atlas gives?"
            )
            messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
            row = {"id": f"bench-{number}", "question": question, "answer": f"Town {number}"}
            file.write(orjson.dumps({**row, "responses_create_params": {"input": messages}}) + b"\n")


def rollout(folder: Path, port: int, tasks: Path, concurrency: int, extra: list[str]) -> dict[str, float]:
    """Run one rollout; return rows per second, wall seconds and peak memory in MB."""
    run = folder / f"run-{concurrency}-{time.time_ns()}"
    url = f"http://127.0.0.1:{port}/v1"
    command = [
        sys.executable,
        "-m",
        "gavel.launch.cli",
        "rollout",
        f"run.dir={run}",
        f"tasks.path={tasks}",
        f"concurrency={concurrency}",
        "env=abstention",
        "rubrics.abstention.profile=gavel/qa-abstention-v1",
        "policy=external",
        f"policy.base_url={url}",
        "policy.model=instant-policy",
        "judge=external",
        f"judge.base_url={url}",
        "judge.model=instant-judge",
        *extra,
    ]
    begun = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - begun
    if done.returncode != 0:
        sys.exit(f"the rollout failed with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    rows = [orjson.loads(line) for line in (run / "results.jsonl").read_bytes().splitlines()]
    started = min(row["timing"]["started"] for row in rows)
    ended = max(row["timing"]["started"] + row["timing"]["total_s"] for row in rows)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return {"rows": len(rows), "rate": len(rows) / (ended - started), "wall": wall, "peak_mb": peak}


def median(folder: Path, port: int, concurrency: int, runs: int, *extra: str) -> dict[str, float]:
    """Return the median run by rate, as the machine's noise goes both ways."""
    tasks = folder / "tasks.jsonl"
    found = sorted(
        (rollout(folder, port, tasks, concurrency, list(extra)) for _ in range(runs)), key=lambda run: run["rate"]
    )
    return found[len(found) // 2]


def start(delay: float) -> tuple[subprocess.Popen[str], int]:
    """Start the instant server; return it and its port."""
    command = [sys.executable, str(HERE / "instant_models.py"), "--judge", "INCORRECT", "--delay", str(delay)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    return server, int(server.stdout.readline())


def seconds(command: list[str]) -> float:
    """Return the median wall seconds of five runs of a command."""
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        times.append(time.perf_counter() - begun)
    return sorted(times)[2]


def main() -> int:
    """Measure, print, compare with the bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_tasks(folder / "tasks.jsonl", options.tasks)
        server, port = start(0.0)
        try:
            low = median(folder, port, 64, options.runs)
            high = median(folder, port, 512, options.runs)
            wide = median(folder, port, 512, options.runs, "policy.max_in_flight=512", "judge.max_in_flight=512")
        finally:
            server.kill()
        server, port = start(0.1)
        try:
            slow = median(folder, port, 64, options.runs)
        finally:
            server.kill()
    ideal = 64 / 0.2  # two calls of 100 ms a row, 64 rows at once
    figures = {
        "rate at 64 (rows/s)": low["rate"],
        "rate at 512 (rows/s)": high["rate"],
        "rate at 512 over rate at 64": high["rate"] / low["rate"],
        "rate at 512, each service with 512 in flight (rows/s)": wide["rate"],
        "share of the ideal rate at 100 ms": slow["rate"] / ideal,
        "peak memory (MB)": max(low["peak_mb"], high["peak_mb"], slow["peak_mb"]),
        "wall of a whole run at 64 (s)": low["wall"],
        "import of the command (s)": seconds([sys.executable, "-c", "import gavel.launch.cli"]),
        "gavel --help (s)": seconds([sys.executable, "-m", "gavel.launch.cli", "--help"]),
    }
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}, indent=2))
    most = {"peak memory (MB)": 300.0, "import of the command (s)": 0.5, "gavel --help (s)": 0.4}
    missed = [name for name, bar in BARS.items() if figures[name] < bar] + [
        name for name, bar in most.items() if figures[name] > bar
    ]
    print("missed: " + ", ".join(missed) if missed else "every bar is met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
