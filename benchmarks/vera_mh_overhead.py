"""What a VERA-MH run costs beside its models: 200 conversations of 30 utterances, 23 judge questions each, on a
scripted server.

    python -m benchmarks.vera_mh_overhead --mirror DIR [--tasks 200]

DIR holds VERA-MH's seven files (``assets.mirror``). The server answers at once, from a process of its own, and its
answers make every walk ask 23 questions. For 10 and 64 conversations in flight: seconds of a whole run per model call
(the server's own time included), CPU of our process per call, peak memory. Ends with 1 if a row failed, a call took
more than 5 ms, or memory passed 500 MB.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
from tests.support.fault_server import server_process

CONCURRENCY = (10, 64)
CALLS = 30 + 23
MOST_MS, MOST_MB = 5.0, 500.0
WORDS = "This is what was said, in some twenty words, so that a conversation grows as long as a real one. " * 3
YES = "5e44d114a7272eb75922a2898baa322da64ae28c5dff0392b6e07e8537576d57"
"""SHA-256 of the prompt of question 11, the one that is answered Yes."""


def reply(body: dict[str, Any]) -> str:
    """Play every role; called in the server's process."""
    if body["model"] != "judge":
        return f"{WORDS}{len(body['messages'])}"
    question = body["messages"][1]["content"]
    options = question.rsplit("options: [", 1)[-1].split("]", 1)[0].split(", ")
    answer = "Yes" if hashlib.sha256(question.encode()).hexdigest() == YES else "No"
    if options[-1] == "User-agent refuses the role-play":
        answer = options[0]
    elif answer not in options:
        answer = options[1]
    return orjson.dumps({"answer": answer, "reasoning": WORDS}).decode()


def prepare(folder: Path, mirror: Path) -> list[str]:
    """Make the 200 tasks; return the words that name assets."""
    assets = [f"assets.mirror={mirror}", f"assets.cache={folder / 'cache'}", "assets.offline=true"]
    words = ["prepare", "env=vera_mh", f"out={folder}", *assets]
    subprocess.run([sys.executable, "-m", "gavel.launch.cli", *words], check=True, capture_output=True)
    return assets


def rollout(folder: Path, url: str, concurrency: int, tasks: int, assets: list[str]) -> dict[str, float]:
    """Run once; return what it took."""
    run = folder / f"run-{concurrency}"
    services = [
        word
        for name in ("simulator_gpt", "simulator_claude")
        for word in (
            f"services.{name}.mode=external",
            f"services.{name}.base_url={url}/v1",
            f"services.{name}.model={name}",
        )
    ]
    command = [
        sys.executable,
        "-m",
        "gavel.launch.cli",
        "rollout",
        f"run.dir={run}",
        f"tasks.path={folder / 'tasks.jsonl'}",
        "env=vera_mh",
        f"concurrency={concurrency}",
        f"tasks.limit={tasks}",
        "policy=external",
        f"policy.base_url={url}/v1",
        "policy.model=chatbot",
        "judge=external",
        f"judge.base_url={url}/v1",
        "judge.model=judge",
        "rubrics.vera_mh.temperature=null",
        *services,
        *assets,
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"the rollout failed with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    rows = [orjson.loads(line) for line in (run / "results.jsonl").read_bytes().splitlines()]
    asked = Counter(row["outcome"]["details"]["judge_answers"] for row in rows)
    assert asked == {23: tasks}, asked
    begun = min(row["timing"]["started"] for row in rows)
    ended = max(row["timing"]["started"] + row["timing"]["total_s"] for row in rows)
    calls = tasks * CALLS
    return {
        "ms per call": 1000 * (ended - begun) / calls,
        "CPU ms per call": 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / calls,
        "peak MB": after.ru_maxrss / 1024,
        "journal MB": (run / "transcripts.jsonl").stat().st_size / 1e6,
    }


def main() -> int:
    """Measure, print, compare with the bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirror", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=200)
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as name, server_process("--reply", "benchmarks.vera_mh_overhead:reply") as url:
        folder = Path(name)
        assets = prepare(folder, options.mirror)
        for concurrency in CONCURRENCY:
            begun = time.perf_counter()
            found[f"{concurrency} in flight"] = rollout(
                folder, url.removesuffix("/v1"), concurrency, options.tasks, assets
            )
            found[f"{concurrency} in flight"]["whole command s"] = time.perf_counter() - begun
    print(
        json.dumps(
            {name: {key: round(value, 2) for key, value in one.items()} for name, one in found.items()}, indent=2
        )
    )
    missed = [name for name, one in found.items() if one["ms per call"] > MOST_MS or one["peak MB"] > MOST_MB]
    print("missed: " + ", ".join(missed) if missed else "every bar is met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
