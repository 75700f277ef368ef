"""What to say of a reply that is not whole, and whether thinking took the room of its answer."""

from __future__ import annotations

from gavel.models.calls.quirks import LENGTH
from gavel.models.texts.thinking import split_thinking
from gavel.models.types import Usage


def describe_incomplete(finish_reason: str, text: str, reasoning: str | None, usage: Usage | None) -> str:
    """Say how a reply ended that is not whole; at a limit, also what thinking took of it.

    Args:
        finish_reason: as translated; empty where the server gave none.
        text: of the reply, as far as it came.
        reasoning: what the server keeps apart from the text.
        usage: tokens as the server counted them.
    """
    said = f"the reply is not complete: finish_reason is {finish_reason or 'missing'!r}"
    return said + (_describe_thinking(text, reasoning, usage) if finish_reason == LENGTH else "")


def _describe_thinking(text: str, reasoning: str | None, usage: Usage | None) -> str:
    if usage is not None and usage.reasoning_tokens:
        return f", {usage.reasoning_tokens} of its {usage.completion_tokens} tokens were thinking"
    if (reasoning or "").strip() and not text.strip():
        return ", thinking took the whole limit"
    if text.strip() and not split_thinking(text).finished:
        return ", it ended within its thinking"
    return ""
