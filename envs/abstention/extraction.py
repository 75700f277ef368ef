"""What a policy's reply answers: thinking removed, the last balanced box taken, gates before any judge.

Follows ``resources_servers/abstention/app.py`` of NVIDIA-NeMo/Gym at cf7f71a57dde0a69b14a2e919b60a01b17cc7abd, with
four corrections: a cut-off reply and an unclosed thinking block are gated, not graded, a box that never closes does not
hide an earlier complete one, and thinking is found in the forms of every model family (upstream knows ``<think>`` and
``<thinking>``). Everything is pure and linear in the length of the reply.
"""

from __future__ import annotations

import re
from typing import Literal

from gavel.envs.endings import is_cut, is_empty
from gavel.models.codec import record
from gavel.models.texts.thinking import split_reply
from gavel.models.types import Reply

_BOX = "\\boxed{"
_BRACES = re.compile(r"\\boxed\{|[{}]")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = re.compile(r"[^\w\s]")

Gate = Literal["truncated", "no_answer"]


@record
class Extraction:
    """What a reply answers: ``gate`` says why there is nothing to grade, else ``answer`` is the text to grade, as the
    policy wrote it.

    ``boxed`` tells whether the answer stood in a complete box.
    """

    answer: str | None
    boxed: bool = False
    gate: Gate | None = None


def extract_answer(reply: Reply) -> Extraction:
    """Return the answer of a reply, or the gate that stops it.

    ``truncated``: the reply ended at the token limit, whatever it holds. ``no_answer``: nothing follows the thinking
    block, or the block never closed, or the reply calls a tool, which nobody gave the policy, or a filter withheld it.
    What is thinking says ``gavel.models.texts.thinking``.
    """
    if is_cut(reply):
        return Extraction(None, gate="truncated")
    if is_empty(reply):
        return Extraction(None, gate="no_answer")
    final = split_reply(reply).answer.strip()
    if not final:
        return Extraction(None, gate="no_answer")
    boxed = find_last_box(final)
    return Extraction(final) if boxed is None else Extraction(boxed, boxed=True)


def find_last_box(text: str) -> str | None:
    r"""Return the content of the last ``\boxed{…}`` that closes (nested braces counted), untrimmed; None if there is
    none.

    "Last" is by where a box opens. Escaped braces count like any other, as upstream does.
    """
    start = text.rfind(_BOX)
    if start < 0:
        return None
    simple = _find_closing(text, start + len(_BOX))
    return text[start + len(_BOX) : simple] if simple is not None else _find_last_closed(text)


def _find_closing(text: str, position: int) -> int | None:
    """Return where the box whose content starts at ``position`` closes."""
    depth = 1
    for brace in _BRACES.finditer(text, position):
        depth += -1 if brace[0] == "}" else 1
        if depth == 0:
            return brace.start()
    return None


def _find_last_closed(text: str) -> str | None:
    """Match all braces in one pass: looking from each box anew would be quadratic in boxes that never close."""
    open_braces: list[int] = []  # where the content of a box starts; -1 for other braces
    best = (-1, -1)
    for brace in _BRACES.finditer(text, text.find(_BOX)):
        if brace[0] != "}":
            open_braces.append(brace.end() if len(brace[0]) > 1 else -1)
        elif open_braces:
            best = max(best, (open_braces.pop(), brace.start()))
    return text[best[0] : best[1]] if best[0] >= 0 else None


def normalise_answer(answer: str) -> str:
    """Return the answer in lower case, without articles and without anything but word characters and single blanks.

    The usual normalisation of SQuAD (Rajpurkar et al. 2016), in upstream's order: articles first, then punctuation.
    """
    words = _ARTICLES.sub(" ", answer.lower().strip())
    return " ".join(_PUNCTUATION.sub("", words).split())
