"""Rows, tasks, judges and transcripts for the tests of the instruction-following environment."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from gavel.envs.instruction_following.environment import InstructionFollowingConfig, InstructionFollowingEnvironment
from gavel.envs.instruction_following.target import parse_target
from gavel.envs.types import Finish, Task, Transcript
from gavel.judges.assets import AssetStore
from gavel.judges.bindings import Binding
from gavel.judges.judge import BoundJudges
from gavel.judges.rubrics.table import make_rubric
from gavel.judges.types import RubricConfig
from gavel.models.failures import ModelFailure
from gavel.models.types import ChatRequest, Completion, Message, Receipt, Reply

BINDING, VERIFIER = "instruction_following", "verifif/instruction_following"
YES, NO = '{"reasoning": "it does", "verdict": "YES"}', '{"reasoning": "it does not", "verdict": "NO"}'


def instruction(
    instruction_id: str, uid: Any = 1, source: Any = "system", misalignment: Any = False, **arguments: Any
) -> dict[str, Any]:
    """An instruction as it stands in a row."""
    return {
        "instruction_id": instruction_id,
        "uid": uid,
        "source": source,
        "is_misalignment_check": misalignment,
        **arguments,
    }


def question(
    content: str, uid: Any = 9, source: Any = "system", misalignment: Any = False, **more: Any
) -> dict[str, Any]:
    """A question as it stands in a row."""
    return {"content": content, "uid": uid, "source": source, "is_misalignment_check": misalignment, **more}


def row(
    row_id: Any, instructions: list[Any], questions: list[Any] | None = None, language: Any = "en", **more: Any
) -> dict[str, Any]:
    """A row in the form of the source."""
    asked = {"input": [{"role": "user", "content": f"Request {row_id}"}]}
    return {
        "id": row_id,
        "instructions": instructions,
        "llm_judge": questions or [],
        "language": language,
        "responses_create_params": asked,
        **more,
    }


class Script:
    """A judge's model that answers as ``reply`` says about the check, and keeps the prompts it was sent."""

    name = "general"

    def __init__(self, reply: Callable[[str], str | ModelFailure] = lambda _: YES) -> None:
        self.reply = reply
        self.prompts: list[str] = []

    async def complete(self, request: ChatRequest) -> Completion:
        self.prompts.append(request.messages[0].content)
        said = self.reply(check_of(self.prompts[-1]))
        if isinstance(said, ModelFailure):
            raise said
        receipt = Receipt(f"{len(self.prompts):016x}", "judge", self.name, "m", "sha256:0")
        return Completion(Reply(said, "stop", "m"), receipt)


def check_of(prompt: str) -> str:
    """The thing to check in a judge's prompt."""
    return prompt.rpartition("<check>\n")[2].partition("\n</check>")[0]


def environment(model: Script | None = None, **options: Any) -> InstructionFollowingEnvironment:
    """The environment with a scripted judge behind the real rubric."""
    rubric = make_rubric(RubricConfig("gavel/instruction-following-v1"), AssetStore())
    judge = BoundJudges({BINDING: Binding(BINDING, "general", rubric)}, lambda _: model or Script())
    return InstructionFollowingEnvironment(InstructionFollowingConfig(**options), judge)


def task(
    instructions: list[Any], questions: list[Any] | None = None, language: str = "en", prompt: str | None = None
) -> Task:
    """A task as it is after reading."""
    target = parse_target(
        {"instructions": instructions, "llm_judge": questions or [], "language": language, "prompt": prompt}
    )
    return Task("t", "instruction_following", VERIFIER, (Message("user", "Do it."),), target, {"domain": language})


async def grade(
    task: Task, text: str, model: Script | None = None, *, reply: Reply | None = None, **options: Any
) -> Finish:
    """Step once over a reply."""
    said = reply or Reply(text, "stop", "p")
    return await environment(model, **options).step(
        task, Transcript((*task.messages, Message("assistant", said.text, reply=said)))
    )


def verdicts(finish: Finish) -> list[bool | None]:
    """What each check came to, in order."""
    return [check.passed for check in finish.outcome.checks]


def verdict(yes: bool) -> str:
    """A judge's reply."""
    return json.dumps({"reasoning": "because", "verdict": "YES" if yes else "NO"})
