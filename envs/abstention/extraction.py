"""What a policy's reply answers: thinking removed, the last balanced box taken, gates before any judge.

Follows ``resources_servers/abstention/app.py`` of NVIDIA-NeMo/Gym at cf7f71a57dde0a69b14a2e919b60a01b17cc7abd, with three
corrections: a cut-off reply and an unclosed thinking block are gated, not graded, and a box that never closes does not hide an
earlier complete one. Everything is pure and linear in the length of the reply.
"""

from __future__ import annotations

import re
from typing import Literal

from gavel.envs.endings import called_a_tool, was_cut
from gavel.models.codec import record
from gavel.models.types import Reply

_BLOCKS = (("<think>", "</think>"), ("<thinking>", "</thinking>"))
_BOX = "\\boxed{"
_BRACES = re.compile(r"\\boxed\{|[{}]")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = re.compile(r"[^\w\s]")

Gate = Literal["truncated", "no_answer"]


@record
class Extraction:
    """What a reply answers: ``gate`` says why there is nothing to grade, else ``answer`` is the text to grade, as the policy wrote it.

    ``boxed`` tells whether the answer stood in a complete box.
    """

    answer: str | None
    boxed: bool = False
    gate: Gate | None = None


def extract(reply: Reply) -> Extraction:
    """Return the answer of a reply, or the gate that stops it.

    ``truncated``: the reply ended at the token limit, whatever it holds. ``no_answer``: nothing follows the thinking block, or the
    block never closed, or the reply calls a tool, which nobody gave the policy. A server that kept the thinking
    apart (``reply.reasoning``) has closed the block itself.
    """
    if was_cut(reply):
        return Extraction(None, gate="truncated")
    if called_a_tool(reply):
        return Extraction(None, gate="no_answer")
    final = final_text(reply.text, think_prefilled=reply.think_prefilled and reply.reasoning is None)
    if not final:
        return Extraction(None, gate="no_answer")
    boxed = last_box(final)
    return Extraction(final) if boxed is None else Extraction(boxed, boxed=True)


def final_text(text: str, *, think_prefilled: bool = False) -> str | None:
    """Return ``text`` without its thinking, trimmed; None where a thinking block never closed.

    A closing tag without an opening one drops everything before it. ``think_prefilled``: the prompt already opened the block, so
    without any closing tag all of ``text`` is thinking. Tags are matched exactly, in lower case, as upstream does.
    """
    if "<think" not in text and "</think" not in text:
        return None if think_prefilled else text.strip()
    if think_prefilled and not any(closing in text for _, closing in _BLOCKS):
        return None
    for opening, closing in _BLOCKS:
        text = _without_pairs(text, opening, closing)
    for _, closing in _BLOCKS:
        text = text.rpartition(closing)[2]
    return None if any(opening in text for opening, _ in _BLOCKS) else text.strip()


def _without_pairs(text: str, opening: str, closing: str) -> str:
    """Drop each opening tag up to the closing tag that follows it."""
    kept, position = [], 0
    while (start := text.find(opening, position)) >= 0:
        end = text.find(closing, start + len(opening))
        if end < 0:
            break
        kept.append(text[position:start])
        position = end + len(closing)
    return "".join([*kept, text[position:]])


def last_box(text: str) -> str | None:
    r"""Return the content of the last ``\boxed{…}`` that closes (nested braces counted), untrimmed; None if there is none.

    "Last" is by where a box opens. Escaped braces count like any other, as upstream does.
    """
    start = text.rfind(_BOX)
    if start < 0:
        return None
    simple = _closed_at(text, start + len(_BOX))
    return text[start + len(_BOX) : simple] if simple is not None else _last_closed(text)


def _closed_at(text: str, position: int) -> int | None:
    """Return where the box whose content starts at ``position`` closes."""
    depth = 1
    for brace in _BRACES.finditer(text, position):
        depth += -1 if brace[0] == "}" else 1
        if depth == 0:
            return brace.start()
    return None


def _last_closed(text: str) -> str | None:
    """Match all braces in one pass: looking from each box anew would be quadratic in boxes that never close."""
    open_braces: list[int] = []  # where the content of a box starts; -1 for other braces
    best = (-1, -1)
    for brace in _BRACES.finditer(text, text.find(_BOX)):
        if brace[0] != "}":
            open_braces.append(brace.end() if len(brace[0]) > 1 else -1)
        elif open_braces:
            best = max(best, (open_braces.pop(), brace.start()))
    return text[best[0] : best[1]] if best[0] >= 0 else None


def normalise(answer: str) -> str:
    """Return the answer in lower case, without articles and without anything but word characters and single blanks.

    The usual normalisation of SQuAD (Rajpurkar et al. 2016), in upstream's order: articles first, then punctuation.
    """
    words = _ARTICLES.sub(" ", answer.lower().strip())
    return " ".join(_PUNCTUATION.sub("", words).split())
