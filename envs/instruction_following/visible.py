"""The part of a reply that is graded: everything after its thinking."""

from __future__ import annotations

import re

from gavel.envs.instruction_following.text import is_seen
from gavel.models.types import Reply

_OPENING = re.compile(r"\s*<(think|thinking|thought|reasoning)>", re.IGNORECASE)
_BLANK_LINES = re.compile(r"\A(?:[^\S\r\n]*[\r\n])+")
_ANY_CLOSING = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)


def visible_text(reply: Reply) -> str:
    """Return a reply without its thinking and without blank lines around it; empty where the thinking never
    ends, and where nothing of the rest would show (see ``text.is_seen``).

    The first line keeps its indentation, which can be what is graded.
    Only blocks at the very start are thinking, so an answer may mention the tags. Where the prompt opened the block
    (``think_prefilled``), everything up to the first closing tag is thinking; a server that kept the thinking apart
    (``reply.reasoning``) has closed it already.
    """
    text = reply.text
    if reply.think_prefilled and reply.reasoning is None:
        closing = _ANY_CLOSING.search(text)
        if closing is None:
            return ""
        text = text[closing.end() :].lstrip(" \t")
    position = 0
    while (opening := _OPENING.match(text, position)) is not None:
        closing = re.compile(f"</{opening[1]}>", re.IGNORECASE).search(text, opening.end())
        if closing is None:
            return ""
        position = closing.end()
    rest = text[position:]
    if position:
        rest = rest.lstrip(" \t")
    return _BLANK_LINES.sub("", rest).rstrip() if is_seen(rest) else ""
