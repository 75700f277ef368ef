"""Rows, replies and what a judge says about them, for the tests of the service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from tests.envs.instruction_following.environment_support import instruction, verdict
from tests.envs.instruction_following.environment_support import row as following_row
from tests.support.runs import STRICT, source_row

ABSTENTION = ("env=abstention", STRICT)
FOLLOWING = ("env=instruction_following",)
RULES = "/v1/instruction_following/grade"
ROOT = Path(__file__).resolve().parents[3]
SHARED = ROOT.parent / "shared" / "data"


def rule_item(number: int = 0, reply: str = "no comma here") -> dict[str, Any]:
    """An item that rules alone grade: followed where there is no comma."""
    return {"task": following_row(number, [instruction("punctuation:no_comma")]), "reply": reply}


def judged_item(number: int = 0, reply: str = "\\boxed{The place called Town}") -> dict[str, Any]:
    """An item that a judge has to grade."""
    return {"task": source_row(number), "reply": reply}


def judge_all(body: dict[str, Any]) -> str:
    """A judge for every environment: what it says depends on the length of the question alone, so that verdicts
    differ.
    """
    prompt = body["messages"][-1]["content"]
    if "<check>" in prompt:
        return verdict(len(prompt) % 2 == 0)
    return ("CORRECT", "INCORRECT", "NOT_ATTEMPTED")[len(prompt) % 3]


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a file."""
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]
