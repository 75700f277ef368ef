"""What differs between models, as tables: names of fields, fields a model refuses, words for why a reply ended.

A model's name tells little (a deployment or an alias hides it, new ones come), so the table only saves a first refusal
where the name is plain; ``request_form`` learns the rest from the servers. Sources: VERA-MH's clients (``gpt-<major >=
5>`` without ``chat``, four Claude models), OpenAI's API reference, and Anthropic's refusals of sampling fields since
Claude Opus 4.7.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_GPT = re.compile(r"gpt-(\d+)", re.IGNORECASE)
_O_SERIES = re.compile(r"(?:^|/)o\d+(?:$|[-@])", re.IGNORECASE)
_CLAUDE = re.compile(
    r"(?P<family>opus|sonnet|fable)-(?P<major>\d{1,2})(?!\d)(?:-(?P<minor>\d{1,2})(?!\d))?"
    r"|claude-(?P<first>\d{1,2})(?:-(?P<second>\d{1,2}))?-(?P<last>opus|sonnet|fable)",
    re.IGNORECASE,
)


def _is_reasoning_gpt(model: str) -> bool:
    major = _GPT.search(model)
    return major is not None and int(major.group(1)) >= 5 and "chat" not in model.lower()


def _is_unsampled_claude(model: str) -> bool:
    """Tell whether this is Claude Opus from 4.7 or another Claude from 5; both orders of words occur
    (``claude-4-5-opus``).
    """
    found = _CLAUDE.search(model)
    if found is None:
        return False
    version = (int(found["major"] or found["first"]), int(found["minor"] or found["second"] or 0))
    return version >= (5, 0) or (version >= (4, 7) and (found["family"] or found["last"]).lower() == "opus")


@dataclass(frozen=True)
class Quirk:
    """What a family of models wants: ``drops`` are fields that are never sent, ``max_tokens`` the name of the output
    limit.
    """

    name: str
    matches: Callable[[str], bool]
    drops: frozenset[str]
    max_tokens: str = "max_tokens"


_OPENAI_DROPS = frozenset(("temperature", "top_p", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs"))

QUIRKS: tuple[Quirk, ...] = (
    Quirk("gpt-5 and later, not chat", _is_reasoning_gpt, _OPENAI_DROPS, "max_completion_tokens"),
    Quirk("o-series", lambda model: _O_SERIES.search(model) is not None, _OPENAI_DROPS, "max_completion_tokens"),
    Quirk("claude of 2026", _is_unsampled_claude, frozenset(("temperature", "top_p", "top_k"))),
)
"""The first that matches wins."""

_NO_QUIRK = Quirk("none", lambda _: True, frozenset())

STOP, LENGTH, TOOLS, FILTERED = "stop", "length", "tool_calls", "content_filter"

FINISH_WORDS: dict[str, str] = {
    STOP: STOP,
    "end_turn": STOP,
    "stop_sequence": STOP,
    "eos": STOP,
    "eos_token": STOP,
    "complete": STOP,
    "completed": STOP,
    LENGTH: LENGTH,
    "max_tokens": LENGTH,
    "max_output_tokens": LENGTH,
    "model_length": LENGTH,
    "model_context_window_exceeded": LENGTH,
    "repetition": LENGTH,  # vLLM cut a reply that went round in circles
    TOOLS: TOOLS,
    "function_call": TOOLS,
    "tool_use": TOOLS,
    FILTERED: FILTERED,
    **dict.fromkeys(
        (
            "content_filtered",
            "safety",
            "refusal",
            "sensitive",
            "prohibited_content",
            "blocklist",
            "spii",
            "recitation",
            "guardrail_intervened",
            "error_toxic",
        ),
        FILTERED,
    ),
}
"""How a reply ended, in the words of servers and in ours; compared in lower case."""

ENDED = frozenset((STOP, LENGTH, TOOLS, FILTERED))
"""Endings of a finished reply. Any other word (``abort``, ``error``, ``cancelled``, ``insufficient_system_resource``,
one nobody knows), or none, says that the engine gave up on the call: that is its failure, never an answer."""


def finish_word(word: str) -> str:
    """Return our word for how a reply ended; one that the table does not know is passed on as it is.

    Google's form of the API says what was found behind the word: ``content_filter: SAFETY``.
    """
    return FINISH_WORDS.get(word.partition(":")[0].strip().lower(), word)


RESPONSES_LACKS = frozenset(("seed", "stop"))
"""Sampling fields the responses API has no place for."""

RESERVED_FIELDS = frozenset(("model", "messages", "input", "stream", "n"))
"""Fields of the request body that ``Sampling.extra`` may not set: the client could not read the reply."""


def find_quirk(model: str) -> Quirk:
    """Return what is special about ``model``; a vendor's prefix does not count, and ``.`` is read as ``-``
    (``claude-opus-4.7``).
    """
    name = _get_basename(model).replace(".", "-")
    return next((quirk for quirk in QUIRKS if quirk.matches(name)), _NO_QUIRK)


def _get_basename(model: str) -> str:
    return model.rstrip("/").rpartition("/")[2].lower()
