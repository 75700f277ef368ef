"""A run in which most replies hold no answer for a reason of the settings says which, in every environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.envs.instruction_following.environment_support import question
from tests.envs.instruction_following.environment_support import row as following_row
from tests.launch.test_faults_end_to_end import write
from tests.support.fault_server import FaultServer
from tests.support.faults import Answer, Fault
from tests.support.runs import JUDGE, POLICY, STRICT, arguments, gavel, reply, source_row

SHAPES = {
    "reasoning field only": (Answer("", reasoning="so \\boxed{Nairobi}"), "reasoning parser"),
    "empty": (Answer(""), "are empty"),
    "withheld": (Answer("", finish_reason="content_filter"), "were withheld by the provider's content filter"),
    "cut": (Answer("It is so that", finish_reason="length"), "policy.sampling.max_response_tokens"),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("environment", ["abstention", "instruction_following"])
async def test_most_replies_without_an_answer_name_the_setting(environment: str, shape: str, tmp_path: Path) -> None:
    answer, words = SHAPES[shape]
    lines = (
        [source_row(k) for k in range(4)]
        if environment == "abstention"
        else [following_row(k, [], [question("Is it so?")]) for k in range(1, 5)]
    )
    tasks = write(tmp_path / "t.jsonl", lines)

    def said(body: dict[str, Any]) -> str | Answer:
        return answer if body["model"] == POLICY else '{"reasoning": "No.", "verdict": "NO"}'

    async with FaultServer(reply=said) as server:
        words_of_run = [
            word
            for word in arguments(tasks, tmp_path / "run", server.base_url)
            if word not in ("env=abstention", STRICT)
        ]
        done = await gavel(*words_of_run, f"env={environment}")
    assert "4 of 4 replies of the policy" in " ".join(done.out.split()), done.out + done.err
    assert words in " ".join(done.out.split())
    assert ("are empty" in done.out) == (shape == "empty")


async def test_few_such_replies_are_no_remark_and_flagged_prompts_and_other_names_are(tmp_path: Path) -> None:
    tasks = write(tmp_path / "t.jsonl", [source_row(k) for k in range(6)])

    def said(body: dict[str, Any]) -> str | Answer:
        return Answer(reply(body), model="gpt-4.1-2025-04-14") if body["model"] == POLICY else reply(body)

    def flags(body: dict[str, Any], n: int) -> Fault | None:
        return (
            Fault("flagged") if body["model"] == JUDGE and "kilometre 1 of" in body["messages"][-1]["content"] else None
        )

    async with FaultServer(reply=said, choose=flags) as server:
        done = await gavel(*arguments(tasks, tmp_path / "run", server.base_url))
    out = " ".join(done.out.split())
    assert done.code == 3, done.out + done.err
    assert "replies of the policy" not in out
    assert "1 rows are in no figure because a provider's content filter" in out
    assert "answered as 'gpt-4.1-2025-04-14'" in out
    assert "policy.served_as=[gpt-4.1-2025-04-14]" in out
