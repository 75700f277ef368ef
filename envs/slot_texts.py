"""The texts of a rubric's slots, from where the rubric says that each comes: the task, its target, the reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from gavel.envs.types import Task, TaskError, Transcript
from gavel.judges.form_types import ABSENT, RubricForm
from gavel.judges.rubrics.prompt import PromptRubric
from gavel.judges.types import Rubric
from gavel.models.codec import to_plain
from gavel.models.texts.thinking import split_reply
from gavel.models.types import Message

Texts = Mapping[str, str]


def find_form(rubric: Rubric) -> RubricForm | None:
    """Return the form a rubric was made of, None for one that is code."""
    return rubric.form if isinstance(rubric, PromptRubric) else None


def fill_slots(form: RubricForm, task: Task, transcript: Transcript, own: Texts) -> dict[str, str]:
    """Return the text of each slot.

    Args:
        form: says where each text comes from.
        task: with its target parsed.
        transcript: ends with the reply that is judged.
        own: texts of the environment by source, such as ``reply.answer``; they come before those made here.

    Raises:
        TaskError: a text that must be there is absent; names the source.
    """
    texts: dict[str, str] = {}
    for slot, source in form.sources.items():
        text = own.get(source)
        text = _find_text(source, task, transcript) if text is None else text
        if text is None and slot not in form.optional:
            raise TaskError(
                f"the rubric {form.name} needs this text",
                field=source,
                found="nothing",
                allowed="a text",
                remedy=f"give it in the row, or let it be absent: slots.{slot}: {source}?",
            )
        texts[slot] = ABSENT if text is None else text
    return texts


def format_visible(message: Message) -> str:
    """Return what a message says: a reply without its thinking."""
    return message.content if message.reply is None else split_reply(message.reply).answer.strip()


def _find_last(task: Task, _: Transcript) -> str | None:
    return next((message.content for message in reversed(task.messages) if message.role == "user"), None)


def _find_first(task: Task, _: Transcript) -> str | None:
    return next((message.content for message in task.messages if message.role == "user"), None)


def _find_system(task: Task, _: Transcript) -> str | None:
    found = [message.content for message in task.messages if message.role in ("system", "developer")]
    return "\n\n".join(found) or None


def _get_reply_text(_: Task, transcript: Transcript) -> str | None:
    return transcript.replies[-1].content if transcript.replies else None


def _get_visible_reply(_: Task, transcript: Transcript) -> str | None:
    return format_visible(transcript.replies[-1]) if transcript.replies else None


def _join_replies(_: Task, transcript: Transcript) -> str:
    return "\n\n".join(map(format_visible, transcript.replies))


def _format_dialogue(messages: tuple[Message, ...]) -> str:
    return "\n\n".join(f"{message.role}: {format_visible(message)}" for message in messages)


_SOURCES: Mapping[str, Callable[[Task, Transcript], str | None]] = {
    "task.last_user": _find_last,
    "task.first_user": _find_first,
    "task.system": _find_system,
    "task.messages": lambda task, _: _format_dialogue(task.messages),
    "reply.text": _get_reply_text,
    "reply.visible": _get_visible_reply,
    "reply.all": _join_replies,
    "reply.answer": _get_visible_reply,
    "transcript.visible": lambda _, transcript: _format_dialogue(transcript.messages),
}


def _find_text(source: str, task: Task, transcript: Transcript) -> str | None:
    if (found := _SOURCES.get(source)) is not None:
        return found(task, transcript)
    place, _, field = source.partition(".")
    fields = to_plain(task.target) if place == "target" else task.metadata
    return write_value(fields.get(field)) if isinstance(fields, Mapping) else None


def write_value(value: Any) -> str | None:
    """Return a field as a judge is shown it: a list of texts as lines, anything else that is no text as JSON; None for
    none.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return "\n".join(f"- {item}" for item in value)
    return orjson.dumps(value).decode()
