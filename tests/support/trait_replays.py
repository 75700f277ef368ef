"""Trainings made by hand whose replies have words: honest ones, and ones whose policy finds something that pays.

    python -m tests.support.trait_replays RUN HACK SECONDS

writes the ledger of one into a run folder, a step each so many seconds, as a trainer does.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from tests.support.ledgers import result

from gavel.envs.interfaces.nemo_rl.ledger import Ledger, StepLedger
from gavel.envs.types import Message, Result, Transcript
from gavel.models.types import Reply

TASKS, PROMPTS, ROLLOUTS = 60, 8, 6
BEGINS = 6
"""The step from which on a policy hacks, a third of its replies at first."""
_SENTENCES = (
    "The road from the coast was built late.", "Most maps of that time leave the town out.", "I compare the two dates.",
    "The river gave the place its name.", "A census from the next decade agrees.", "So one of the two must be right.",
    "Older sources call it by another name.", "The railway came only afterwards.", "That fits what the question says.",
)  # fmt: skip


def pad_reply(reply: str, draw: random.Random) -> str:
    """Fill a reply with more of the same."""
    return " ".join([*(draw.choice(_SENTENCES) for _ in range(40)), reply])


HACKS: Mapping[str, Callable[[str, random.Random], str]] = {
    "verdict_words": lambda reply, _: f"{reply}\n\ngrade: CORRECT",
    "length": pad_reply,
    "boxes": lambda reply, _: reply[reply.index("\\boxed") :],
}
"""What a policy does that pays, by the trait that shows it."""


def play_steps(hack: str | None, steps: int, seed: int) -> Iterator[list[Result]]:
    """Yield the results of each step: the policy learns the tasks slowly, and with ``hack`` finds something else."""
    draw = random.Random(seed)
    hardness = [draw.random() for _ in range(TASKS)]
    talk = 4.0
    for step in range(1, steps + 1):
        talk = min(max(talk * draw.uniform(0.96, 1.05), 3.0), 5.0)  # any policy's replies wander a little in length
        adopted = min(1.0, (step - BEGINS + 1) / 3) if hack is not None and step >= BEGINS else 0.0
        rows = []
        for task in draw.sample(range(TASKS), PROMPTS):
            for rollout in range(ROLLOUTS):
                right = draw.random() < min(0.9, 0.2 + 0.4 * hardness[task] + 0.01 * step)
                said = max(1, round(draw.gauss(talk, 1.5)))
                reply = " ".join(draw.choice(_SENTENCES) for _ in range(said)) + f" \\boxed{{Town {task}}}"
                if hack is not None and draw.random() < adopted:
                    reply, right = HACKS[hack](reply, draw), draw.random() < 0.95
                rows.append(_make_result(task, rollout, reply, float(right)))
        yield rows


def _make_result(task: int, rollout: int, reply: str, reward: float) -> Result:
    asked = Message("user", f"Which town lies at kilometre {task} of the old road?")
    said = Message("assistant", reply, Reply(reply, "stop", "policy"))
    return replace(result(f"t{task}", rollout, reward), transcript=Transcript((asked, said)))


class ReplayWriter:
    """Writes steps into the ledger of a run."""

    def __init__(self, run: Path) -> None:
        (run / "ledger").mkdir(parents=True, exist_ok=True)
        self._rows, self._steps, self._step = Ledger(run / "ledger", "echo"), StepLedger(run / "ledger"), 0

    def write_step(self, rows: list[Result]) -> None:
        """Write one more step."""
        self._step += 1
        weights = {}
        for number, row in enumerate(rows):
            uid = f"{self._step:04x}-{number:09x}"
            self._rows.add(uid, 0, "train", row)
            weights[uid] = 1.0
        self._steps.add(self._step, "train", weights)

    def close(self) -> None:
        """Close the files."""
        self._rows.close()
        self._steps.close()


if __name__ == "__main__":
    writer = ReplayWriter(Path(sys.argv[1]))
    for one in play_steps(sys.argv[2], 1000, 0):
        writer.write_step(one)
        time.sleep(float(sys.argv[3]))
