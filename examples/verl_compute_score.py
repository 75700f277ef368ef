"""A score for verl, graded by a ``gavel serve`` that all workers share.

    gavel serve env=instruction_following reward=mean judge=none
    python -m verl.trainer.main_ppo … \\
        custom_reward_function.path=examples/verl_compute_score.py custom_reward_function.name=compute_score

Each row's ``reward_model.ground_truth`` is a row of gavel as JSON text, its ``data_source`` the name that the
environment is served as.
verl calls this once per sample, in worker processes: the client keeps its connection from call to call, and makes one
in each worker.
"""

import json
import os
import sys
from functools import cache
from typing import Any

import gavel

URL = os.environ.get("GAVEL_URL", "http://127.0.0.1:9400")


@cache
def open_client(env: str) -> gavel.SyncGavelClient:
    """Open one client for each environment."""
    return gavel.SyncGavelClient(URL, env, api_key=os.environ.get("GAVEL_KEY"))


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any
) -> dict[str, Any]:
    """Return the reward and the label.

    Raises:
        RuntimeError: there is no grade. verl has no sample without a score, and a 0 in its place would train the policy
            down for what a judge did, so training stops; ``gavel serve`` has tried again by then.
    """
    del extra_info
    answer = open_client(data_source).grade(json.loads(ground_truth), solution_str)
    if answer.status != "graded":
        raise RuntimeError(f"not graded: {answer.failure}")
    return {"score": answer.reward.value, "label": answer.outcome.label}


if __name__ == "__main__":
    instruction = {"uid": 1, "instruction_id": "punctuation:no_comma", "source": "user", "is_misalignment_check": False}
    row = json.dumps({"prompt": "Write a line without commas.", "instructions": [instruction]})
    for said in sys.argv[1:] or ["a fine line", "well, a line"]:
        print(compute_score("instruction_following", said, row))
