"""The part of a reply that is graded: everything but its thinking."""

from __future__ import annotations

import re

from gavel.envs.instruction_following.text import is_seen, show_reply
from gavel.models.texts.thinking import split_reply
from gavel.models.types import Reply

_HIDING = ("<", "&", "[")
"""What a reply begins with that shows nothing of itself but could be read: a comment, a hidden element, an entity, a
definition.
"""
_BLANK_LINES = re.compile(r"\A(?:[^\S\r\n]*[\r\n])+")


def extract_visible_answer(reply: Reply) -> str:
    """Return a reply's answer (see ``gavel.models.texts.thinking``) without blank lines around it; empty where the
    thinking never ends, and where nothing of the answer would show (see ``text.is_seen``).

    The first line keeps its indentation, which can be what is graded; blanks between a closing tag and the answer are
    none.
    """
    split = split_reply(reply)
    answer = split.answer.lstrip(" \t") if split.thinking else split.answer
    if answer.lstrip()[:1] in _HIDING and not is_seen(show_reply(answer)):
        return ""
    return _BLANK_LINES.sub("", answer).rstrip() if is_seen(answer) else ""
