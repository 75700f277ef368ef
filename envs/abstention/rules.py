"""Verdicts that need no judge, one table per grading profile.

Each rule is counted by its name in the outcome's details.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping

from gavel.envs.abstention.extraction import normalise_answer
from gavel.models.codec import record

ABSTENTION_TOKEN = "[IDK]"
_NORMALISED_TOKEN = normalise_answer(ABSTENTION_TOKEN)
_WORD = re.compile(r"\w")
_FINAL_PERIOD = re.compile(r"[\w\"'`”’»)\]}]\.\Z")
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»"}
_OPENERS = frozenset({  # casefolded
    "solution", "solution:", "answer:", "final answer:", "thought process", "thought process:", "reasoning:", "explanation:",  # noqa: E501
    "analysis:", "step 1:", "the answer is", "the answer is:", "the final answer is", "the final answer is:",
    "let's think step by step", "let's think step by step:",
    "let's solve this problem step by step", "let's solve this problem step by step:",
})  # fmt: skip


@record
class Decided:
    """A verdict without a call: ``label`` and the ``rule`` that gave it."""

    label: str
    rule: str


References = tuple[str, ...]
Rule = Callable[[str, References], Decided | None]
"""From (answer, accepted answers) to a verdict, or None where the judge must say."""


def fold_answer(text: str) -> str:
    """Return ``text`` after NFC, trimmed, blanks collapsed, without one outer pair of quotes or backticks and one final
    period.

    Nothing else is folded: case, signs and inner punctuation can be the answer (``23<45`` is not ``23>45``, C++ is not
    C). A period goes only after a word, a quote or a bracket, so ``..`` is not ``.``.
    """
    bare = " ".join(unicodedata.normalize("NFC", text).split())
    stripped = _drop_period(bare)
    unquoted = _drop_quotes(stripped)
    return unquoted if stripped != bare else _drop_period(unquoted)


def _drop_period(text: str) -> str:
    return text[:-1] if _FINAL_PERIOD.search(text) else text


def _drop_quotes(text: str) -> str:
    """Drop an outer pair, unless its closing mark also stands inside (``"a" or "b"`` has no outer pair)."""
    closing = _QUOTES.get(text[:1])
    inside = text[1:-1]
    whole = (
        closing is not None
        and len(text) > 2
        and text.endswith(closing)
        and closing not in inside
        and text[0] not in inside
    )
    return inside.strip() if whole else text


def _match_normalised_token(answer: str, _: References) -> Decided | None:
    return Decided("abstained", "abstention_token") if normalise_answer(answer) == _NORMALISED_TOKEN else None


def _match_exact_token(answer: str, _: References) -> Decided | None:
    return Decided("abstained", "abstention_token") if fold_answer(answer) == ABSTENTION_TOKEN else None


def _match_exactly(answer: str, references: References) -> Decided | None:
    folded = fold_answer(answer)
    return (
        Decided("correct", "exact_match")
        if folded and any(folded == fold_answer(reference) for reference in references)
        else None
    )


def _match_nothing_said(answer: str, references: References) -> Decided | None:
    """Answers that no reference can support: empty, no word where all references have one, or only the words before an
    answer.
    """
    if not answer.strip():
        return Decided("incorrect", "empty_answer")
    if not _WORD.search(answer):
        return (
            Decided("incorrect", "wordless_answer")
            if all(_WORD.search(reference) for reference in references)
            else None
        )
    opener = " ".join(answer.replace("’", "'").casefold().split()).strip("*_#.… ")
    if opener in _OPENERS and all(opener.rstrip(":") not in reference.casefold() for reference in references):
        return Decided("incorrect", "bare_opener")
    return None


NATIVE, STRICT = "nvidia/qa-abstention-v1", "gavel/qa-abstention-v1"
_PROFILES: Mapping[str, tuple[Rule, ...]] = {
    NATIVE: (_match_normalised_token,),
    STRICT: (_match_exact_token, _match_exactly, _match_nothing_said),
}
PROFILES = tuple(_PROFILES)
"""The grading profiles whose rules are their own."""


def list_rules(profile: str, *, exact_match: bool = True) -> tuple[Rule, ...]:
    """Return a profile's rules in the order they apply; without ``exact_match`` equality with the reference is the
    judge's to see.

    A profile that is not one of ``PROFILES``, of a file or a plugin, has those of ours.
    """
    return tuple(
        rule for rule in _PROFILES.get(profile, _PROFILES[STRICT]) if exact_match or rule is not _match_exactly
    )


def apply_rules(rules: tuple[Rule, ...], answer: str, references: References) -> Decided | None:
    """Return the verdict of the first rule that has one."""
    for rule in rules:
        if (decided := rule(answer, references)) is not None:
            return decided
    return None
