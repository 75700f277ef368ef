"""The messages of a source's row, as `{role, content}` or a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from gavel.envs.types import TaskError
from gavel.models.errors import shorten_value
from gavel.models.types import Message, Role

_ROLES = get_args(Role)


def read_messages(given: Any, field: str, *, blank: bool = True) -> tuple[Message, ...]:
    """Return a text, or a list of ``{role, content}``, as messages; parts of a content list are joined as they are.

    Args:
        given: what stands in the row.
        field: where, for the error.
        blank: whether a text may be blank.

    Raises:
        TaskError: names the field.
    """
    if isinstance(given, str) and (blank or given.strip()):
        return (Message("user", given),)
    if not isinstance(given, list) or not given:
        raise TaskError(
            "these are no messages", field=field, found=shorten_value(given), allowed="a text, or a list of messages"
        )
    return tuple(_read_message(item, f"{field}.{place}", blank) for place, item in enumerate(given))


def _read_message(item: Any, place: str, blank: bool) -> Message:
    if not isinstance(item, Mapping) or item.get("type", "message") != "message":
        raise TaskError("this is not a message", field=place, found=shorten_value(item), allowed="{role, content}")
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES:
        raise TaskError(
            "there is no such role", field=f"{place}.role", found=shorten_value(role), allowed=", ".join(_ROLES)
        )
    if (
        isinstance(content, list)
        and content
        and all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in content)
    ):
        content = "".join(part["text"] for part in content)
    elif not isinstance(content, str) or not (blank or content.strip()):
        raise TaskError(
            "this is not a text",
            field=f"{place}.content",
            found=shorten_value(content),
            allowed=f"a text{'' if blank else ' that is not blank'}, or a list of text parts",
        )
    return Message(cast("Role", role), content)
