"""Judgements per second of one step inside NeMo-RL's own rollouts, against the same judge asked bare; needs
``NEMO_RL_ROOT``.

    NEMO_RL_ROOT=/path/to/RL python benchmarks/nemo_rl_throughput.py              # table; exits 1 where a bar is missed
    NEMO_RL_ROOT=/path/to/RL python benchmarks/nemo_rl_throughput.py --way collector --prompts 16

``--way``: ``sync`` and ``async`` are the rollouts of ``grpo_train``, ``collector`` is that of ``async_grpo_train``;
``gym`` are those that NeMo Gym makes, in its own servers (``nemo_gym`` must be importable, see
``tests/envs/interfaces/nemo_rl_gym.py``). There a judge takes 1 s (``--latency``), so that 64 a second are the most:
NeMo Gym's hops, each a process that reads and writes every row anew, are slower than the judge of the other ways.

2,048 samples (64 prompts, 32 rollouts each), one judge call each, 64 in flight, a judge that takes 100 ms in a process
of its own: no more than 640 a second can be had. ``judged`` is over the time that the trainer waits for its
environment; ``whole`` adds what NeMo-RL does around it (it tokenizes an observation a sample, for one); ``bare`` is a
client that only asks, measured right before each step, so that a busy machine is seen. Figures are of the median step.
The bar is 85 % of ``bare``; rollouts that go on by themselves cost NeMo-RL a millisecond of CPU a sample, so that a
machine with other work on it misses it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.envs.interfaces import nemo_rl_harness as harness
from tests.envs.interfaces.nemo_rl_speed import IDEAL, IN_FLIGHT, measure, measure_gym
from tests.envs.interfaces.nemo_rl_train import trainer_process

LEAST_SHARE = 0.85
MOST = {"peak_mb": 1000.0}


def main() -> int:
    """Measure, print, compare with the bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", choices=("sync", "async", "collector", "gym"), default="sync")
    parser.add_argument("--latency", type=float, default=1.0, help="seconds of the judge; --way gym only")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--generations", type=int, default=32)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    size = {"prompts": options.prompts, "generations": options.generations, "steps": options.steps}
    ideal = IDEAL if options.way != "gym" else IN_FLIGHT / options.latency
    with trainer_process(), tempfile.TemporaryDirectory() as name:
        tokenizer = harness.make_tokenizer("chatml")
        made = (
            measure_gym(Path(name), **size, latency=options.latency)
            if options.way == "gym"
            else measure(Path(name), tokenizer, way=options.way, **size)
        )
        steps = list(made)
    middle = asdict(sorted(steps, key=lambda step: step.judged)[len(steps) // 2])
    shares = {f"{name} over the ideal of {ideal:g}": middle[name] / ideal for name in ("judged", "whole", "bare")}
    print(json.dumps({name: round(value, 3) for name, value in {**middle, **shares}.items()}, indent=2))
    missed = ["judged"] if middle["judged"] < LEAST_SHARE * middle["bare"] else []
    missed += [name for name, bar in MOST.items() if middle[name] > bar]
    print("missed: " + ", ".join(missed) if missed else "every bar is met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
