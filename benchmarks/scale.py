"""What a row costs a run of many: to plan and play, to merge, to read again, to report; beside bare reads of its files.

    python -m benchmarks.scale                         # 10,000 and 100,000 rows
    python -m benchmarks.scale --rows 1000000          # needs some 10 GB of memory and half an hour

A run is played in two shards against an instant local model, merged, gone on with (nothing is owed) and reported, each
by ``gavel`` in a process of its own. ``CPU`` is processor time of that process, its start included; ``ratio`` is that
over a bare read (every line parsed as JSON) of the files the stage reads or writes. The last column is what a row costs
beside what it costs at the smallest size: 1.0 is flat.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import orjson
from benchmarks.rollout_throughput import make_tasks, start

FLAT = 1.3
"""A row may cost so many times what it costs at the smallest size."""
GAVEL = (sys.executable, "-m", "gavel.launch.cli")


@dataclass(frozen=True)
class Stage:
    """What one process took: ``cpu`` and ``wall`` seconds, ``peak`` MB, ``bare`` CPU seconds of a read of its files."""

    name: str
    cpu: float
    wall: float
    peak: float
    bare: float


def read_bare(*files: Path) -> float:
    """Return the CPU seconds of parsing every line of some files."""
    begun = time.process_time()
    for path in files:
        with path.open("rb") as file:
            for line in file:
                orjson.loads(line)
    return time.process_time() - begun


def run_verb(name: str, *words: str) -> Stage:
    """Run a verb in a process of its own; return what it took. A verb that fails ends the benchmark."""
    begun = time.perf_counter()
    process = subprocess.Popen((*GAVEL, *words), stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"gavel {' '.join(words)} ended with {process.returncode}")
    wall = time.perf_counter() - begun
    return Stage(name, usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024, 0.0)


def wait_first_call(run: Path, words: list[str]) -> float:
    """Start a rollout; return the wall seconds until its first answer is journalled, and end it."""
    begun, journal = time.perf_counter(), run / "transcripts.jsonl"
    process = subprocess.Popen((*GAVEL, *words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (journal.exists() and journal.stat().st_size) and process.poll() is None:
        time.sleep(0.01)
    took = time.perf_counter() - begun
    process.terminate()
    process.wait()
    shutil.rmtree(run)
    return took


def measure_size(folder: Path, count: int, port: int) -> tuple[float, list[Stage]]:
    """Play, merge, resume and report a run of so many rows; return the seconds to its first call, and the stages."""
    tasks, url = folder / "tasks.jsonl", f"http://127.0.0.1:{port}/v1"
    make_tasks(tasks, count)
    words = ["rollout", f"tasks.path={tasks}", "env=abstention", "rubrics.abstention.profile=gavel/qa-abstention-v1",
             "policy=external", f"policy.base_url={url}", "policy.model=instant-policy",
             "judge=external", f"judge.base_url={url}", "judge.model=instant-judge", "report=false"]  # fmt: skip
    first = wait_first_call(folder / "first", [*words, f"run.dir={folder / 'first'}"])
    parts = [folder / f"part-{number}" for number in (1, 2)]
    played = [run_verb("play", *words, f"run.dir={part}", f"shard={number}/2") for number, part in enumerate(parts, 1)]
    whole = folder / "whole"
    merged = run_verb("merge", "merge", *map(str, parts), f"into={whole}")
    files = [whole / name for name in ("inputs.jsonl", "transcripts.jsonl", "results.jsonl")]
    resumed = run_verb("resume", "rollout", str(whole))
    reported = run_verb("report", "report", str(whole), f"out={folder / 'report.html'}")
    both = [sum(getattr(stage, name) for stage in played) for name in ("cpu", "wall")]
    stored = read_bare(*files)
    stages = [Stage("play", *both, max(stage.peak for stage in played), read_bare(tasks) + stored)]
    stages += [Stage(one.name, one.cpu, one.wall, one.peak, stored) for one in (merged, resumed, reported)]
    return first, stages


def main() -> int:
    """Measure each size, print, and return 1 where a row of the largest costs too much more than of the smallest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    options = parser.parse_args()
    server, port = start(0.0)
    base: dict[str, float] = {}
    steep = False
    try:
        print("     rows  stage        CPU s   wall s  ms a row   peak MB   ratio   beside the smallest")
        for count in sorted(options.rows):
            with tempfile.TemporaryDirectory() as name:
                first, stages = measure_size(Path(name), count, port)
            print(f"{count:9,d}  first call {'':8}{first:8.1f}")
            for stage in stages:
                each = stage.cpu / count * 1000
                growth = each / base.setdefault(stage.name, each)
                steep = steep or growth > FLAT
                print(
                    f"{count:9,d}  {stage.name:8} {stage.cpu:9.1f} {stage.wall:8.1f} {each:9.3f} {stage.peak:9.0f} "
                    f"{stage.cpu / stage.bare:7.1f} {growth:10.2f}"
                )
    finally:
        server.kill()
    return int(steep)


if __name__ == "__main__":
    sys.exit(main())
