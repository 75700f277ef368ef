"""A policy and judges for NeMo Gym's runs, as reply functions of ``fault_server``, and the rows they know how to
answer.

Question ``n`` asks for ``n + 1``. What becomes of it goes by ``n % 10``: 0 to 5 right, 6 abstains, 7 and 8 wrong, 9 a
judge that says nothing that can be read (until a file named by ``GYM_JUDGE_MENDED`` exists).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

_NUMBER = re.compile(r"follows (\d+)\?")
_PERIOD = 10
RIGHT, ABSTAINS, UNREADABLE = range(6), 6, 9


def question(number: int) -> str:
    return f"Which number follows {number}?"


def abstention_row(number: int) -> dict[str, Any]:
    """One row in the form of the abstention data set."""
    domain = ("law-wiki", "health-wiki", "go-swe")[number % 3]
    asked = [{"role": "system", "content": "Answer in \\boxed{}."}, {"role": "user", "content": question(number)}]
    return {
        "id": f"{domain}-{number:05d}",
        "question": question(number),
        "answer": str(number + 1),
        "responses_create_params": {"input": asked, "tools": [], "parallel_tool_calls": False},
        "agent_ref": {"type": "responses_api_agents", "name": "gavel_abstention_agent"},
    }


def following_row(number: int) -> dict[str, Any]:
    """One row in the form of verifif: two rules that a program checks, and in every tenth row a question for the
    judge.
    """
    rules = [
        {"instruction_id": "length_constraints:number_words", "relation": "at least", "num_words": 3},
        {"instruction_id": "keywords:existence", "keywords": ["harbour"]},
    ]
    facts = {"source": "user", "is_misalignment_check": False}
    judged = [{"uid": 9, "content": f"Is reply {number} polite?", **facts}] if number % _PERIOD == UNREADABLE else []
    return {
        "id": number,
        "language": "en",
        "llm_judge": judged,
        "instructions": [{**rule, **facts, "uid": uid} for uid, rule in enumerate(rules, start=1)],
        "responses_create_params": {
            "input": [{"role": "user", "content": f"Tell me about the sea. {question(number)}"}]
        },
        "agent_ref": {"type": "responses_api_agents", "name": "gavel_instruction_following_agent"},
    }


def _text(body: dict[str, Any]) -> str:
    return "\n".join(str(message.get("content")) for message in body.get("messages") or body.get("input") or [])


def policy(body: dict[str, Any]) -> str:
    """The policy of both environments."""
    text = _text(body)
    found = _NUMBER.search(text)
    assert found is not None, text
    number = int(found[1])
    kind = number % _PERIOD
    if "sea" in text:
        return "The harbour lies far behind us." if kind in RIGHT or kind == UNREADABLE else "Water."
    said = f"the number {number + 1}" if kind in RIGHT else "[IDK]" if kind == ABSTAINS else f"perhaps {number}"
    return f"\\boxed{{{said}}}"


def judge(body: dict[str, Any]) -> str:
    """The judge of both: the verdict in the rubric's words, or nothing that can be read where the row says so."""
    text = _text(body)
    if (found := re.search(r"reply (\d+) polite", text)) is not None:
        return '{"reasoning": "polite", "verdict": "YES"}' if _mended() else "I cannot say."
    found = list(_NUMBER.finditer(text))[-1]
    number = int(found[1])
    if number % _PERIOD == UNREADABLE and not _mended():
        return ""
    return "CORRECT" if f"the number {number + 1}" in text else "INCORRECT"


def _mended() -> bool:
    path = os.environ.get("GYM_JUDGE_MENDED")
    return path is not None and Path(path).exists()


def both(body: dict[str, Any]) -> str:
    """One server for both, told apart by the model's name."""
    return judge(body) if body.get("model") == "judge" else policy(body)


def judged(body: dict[str, Any]) -> str:
    """The same with a judge that always says something that can be read, for measurements."""
    return both(body) or "INCORRECT"
