"""How a policy's reply ended decides whether there is anything to grade, in every environment."""

from __future__ import annotations

import pytest
from tests.envs.abstention_support import grade
from tests.envs.instruction_following.environment_support import grade as grade_instructions
from tests.envs.instruction_following.environment_support import instruction, task, verdicts

from gavel.envs.abstention.rules import NATIVE, STRICT
from gavel.envs.endings import unfinished
from gavel.envs.types import Finish
from gavel.models.texts.textwork import LONGEST
from gavel.models.types import Reply

UNFINISHED = ["abort", "error", "cancelled", "canceled", "insufficient_system_resource", "null", ""]
CUT = ["length", "model_length", "max_tokens", "MAX_TOKENS", "max_output_tokens"]
CALLS = ["tool_calls", "function_call", "tool_use"]


def is_the_engines_failure(finish: Finish) -> bool:
    failure = finish.outcome.failure
    return failure is not None and (str(failure.kind), failure.stage) == ("provider_unavailable", "policy")


@pytest.mark.parametrize("word", UNFINISHED)
async def test_a_reply_that_was_never_finished_is_not_graded(word: str) -> None:
    finish, asked = await grade(STRICT, r"\boxed{Paris}", finish_reason=word)
    assert is_the_engines_failure(finish)
    assert asked == []
    reply = Reply("all in lower case", word, "p")
    assert is_the_engines_failure(
        await grade_instructions(task([instruction("change_case:lowercase")]), "", reply=reply)
    )


@pytest.mark.parametrize(
    ("word", "label"), [*((word, "truncated") for word in CUT), *((word, "no_answer") for word in CALLS)]
)
async def test_a_reply_cut_off_or_calling_a_tool_earns_nothing_and_costs_no_judge(word: str, label: str) -> None:
    finish, asked = await grade(STRICT, r"\boxed{Paris}", finish_reason=word)
    assert (finish.outcome.label, asked) == (label, [])


@pytest.mark.parametrize("word", CALLS)
async def test_a_reply_that_calls_a_tool_follows_no_instruction(word: str) -> None:
    reply = Reply("all in lower case", word, "p")
    finish = await grade_instructions(task([instruction("change_case:lowercase")]), "", reply=reply)
    assert (finish.outcome.label, verdicts(finish)) == ("not_followed", [False])


FILTERED = ["content_filter", "CONTENT_FILTER", "safety", "refusal"]


@pytest.mark.parametrize("word", FILTERED)
@pytest.mark.parametrize("text", ["", r"\boxed{Paris}"])
async def test_a_reply_that_a_filter_withheld_is_graded_and_earns_nothing(word: str, text: str) -> None:
    for profile in (NATIVE, STRICT):
        finish, asked = await grade(profile, text, finish_reason=word)
        assert (finish.outcome.label, asked) == ("no_answer", [])
    reply = Reply("all in lower case" if text else "", word, "p")
    finish = await grade_instructions(task([instruction("change_case:lowercase")]), "", reply=reply)
    assert (finish.outcome.label, verdicts(finish)) == ("not_followed", [False])


@pytest.mark.parametrize("word", ["stop", "end_turn", "STOP", *CUT, *CALLS, *FILTERED])
def test_every_other_ending_is_the_policys_own(word: str) -> None:
    assert unfinished(Reply("text", word, "p")) is None


@pytest.mark.parametrize("word", ["stop", "length", "tool_calls"])
@pytest.mark.parametrize("unit", ["Paris ", "<think>", "x <"])
async def test_a_reply_longer_than_what_is_read_is_ungraded_in_a_word_and_costs_no_judge(word: str, unit: str) -> None:
    text = (unit * LONGEST)[: LONGEST + 1]
    finish, asked = await grade(STRICT, text, finish_reason=word)
    assert asked == []
    instructed = await grade_instructions(
        task([instruction("change_case:lowercase")]), "", reply=Reply(text, word, "p")
    )
    for each in (finish, instructed):
        failure = each.outcome.failure
        assert failure is not None
        assert (str(failure.kind), failure.stage) == ("gavel:context_overflow", "verifier")
        assert failure.reason == "the reply has 2,000,001 characters, and no more than 2,000,000 are read"
    assert unfinished(Reply(text[1:], word, "p")) is None
