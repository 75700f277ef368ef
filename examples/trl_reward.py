"""A reward function for TRL's GRPOTrainer, graded in the trainer's own process.

    trainer = GRPOTrainer(model=…, train_dataset=…, reward_funcs=[reward_reply], …)

The data set has a column ``task``: a row of gavel as JSON text. TRL 1.16 leaves a completion out whose reward is None
(older versions made a 0 of it, which would train the policy down for what a judge did).
"""

import json
from functools import cache
from typing import Any

import gavel

WORDS = (
    "env=instruction_following",
    "reward=mean",
)  # with a judge also judge=external, judge.base_url=…, judge.model=…


@cache
def open_grader() -> gavel.Grader:
    """Open one grader for all steps."""
    return gavel.Grader(*WORDS)


def reward_reply(completions: list[Any], task: list[str], **_: Any) -> list[float | None]:
    """Return a reward for each completion, None where it could not be graded."""
    texts = [said if isinstance(said, str) else said[-1]["content"] for said in completions]
    results = open_grader().grade_many((json.loads(row), text) for row, text in zip(task, texts, strict=True))
    return [result.reward.value if result.reward is not None else None for result in results]


if __name__ == "__main__":
    instruction = {"uid": 1, "instruction_id": "punctuation:no_comma", "source": "user", "is_misalignment_check": False}
    row = json.dumps({"prompt": "Write a line without commas.", "instructions": [instruction]})
    print(reward_reply(["a fine line", "well, a line", "a line"], task=[row, row, "{}"]))
