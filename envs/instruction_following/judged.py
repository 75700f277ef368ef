"""What a judge is asked: one check in words for each judged instruction, or the task's own question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gavel.envs.instruction_following.arguments import RELATIONS, Argument
from gavel.envs.instruction_following.instructions import INSTRUCTIONS
from gavel.envs.instruction_following.target import InstructionItem, InstructionTarget, QuestionItem
from gavel.judges.types import JudgeQuery
from gavel.models.types import Message

_NUMBERS = ("relation", "num_")
_KEY_LENGTH = 200
"""Characters of the reply that tell one shared prefix from another."""


def make_queries(
    binding: str, task_id: str, target: InstructionTarget, messages: Iterable[Message], reply: str
) -> Mapping[int, JudgeQuery]:
    """Return the query of each item that needs a judge, by the item's place in ``target.items``.

    All share everything but the check, which stands last in the prompt.
    """
    asked = {place: check for place, item in enumerate(target.items) if (check := check_text(item)) is not None}
    if not asked:
        return {}
    conversation = format_conversation(messages) or target.prompt or ""
    prefix = f"{task_id}/{reply[:_KEY_LENGTH]}"
    return {
        place: JudgeQuery(binding, {"conversation": conversation, "reply": reply, "check": check}, prefix_key=prefix)
        for place, check in asked.items()
    }


def format_conversation(messages: Iterable[Message]) -> str:
    """Return messages as text, each behind its role."""
    return "\n\n".join(f"{message.role}: {message.content}" for message in messages)


def check_text(item: InstructionItem | QuestionItem) -> str | None:
    """Return what the judge is asked about an item; None for one that a program checks."""
    if isinstance(item, QuestionItem):
        return item.content
    entry = INSTRUCTIONS[item.instruction_id]
    if entry.kind != "judged":
        return None
    lines = [
        _format_line(argument, item.arguments) for argument in entry.arguments if not argument.name.startswith(_NUMBERS)
    ]
    given = ["Given:", *lines] if lines else []
    return "\n".join(
        [
            f"Does the reply meet this requirement? {entry.definition}",
            *given,
            *_format_count(entry.mode, item.arguments),
        ]
    )


def _format_line(argument: Argument, arguments: Mapping[str, Any]) -> str:
    value = str(arguments[argument.name])
    meaning = argument.values.get(value)
    words = value.replace("_", " ")
    return f"- {argument.name.replace('_', ' ')}: {words}" + (f" ({meaning})" if meaning else "")


def _format_count(mode: str | None, arguments: Mapping[str, Any]) -> list[str]:
    if mode != "counts":
        return []
    number = next(value for name, value in arguments.items() if name.startswith("num_"))
    return [f"Relation: the number must be {RELATIONS[arguments['relation']]} {number}. Count first, then compare."]
