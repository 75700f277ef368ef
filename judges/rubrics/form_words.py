"""What must hold of a rubric's labels, the words that say them, and the members of the reply they stand in."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from gavel.judges.form_types import ENDS, NUMBER, VERDICTS, RubricForm
from gavel.judges.rubrics.form_attacks import LOOKALIKES
from gavel.models.errors import ConfigError, find_nearest, shorten_value

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
_DECORATION = " \t\r\n*_`\"'#.!"
_LONGEST_WORD = 100
_FARTHEST, _NARROWEST = 999_999_999, 1e-6
"""Ends of a range of numbers: a reader takes nine digits on each side of the point."""
_LATIN = {copy: ord(letter) for letter, copy in ((chr(code), copy) for code, copy in LOOKALIKES.items())}


def _skeletonise(word: str) -> str:
    """Return what is left of a word without what nobody tells apart: marks, width, capitals, blanks, look-alikes."""
    plain = " ".join(unicodedata.normalize("NFKC", word).split()).translate(_LATIN)
    return "".join(letter for letter in plain if not _is_unseen(letter)).strip(_DECORATION).casefold()


def _is_unseen(letter: str) -> bool:
    return unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp")


def check_known(names: Iterable[str], known: Iterable[str], place: str, what: str) -> None:
    """Refuse a name that is not known.

    Raises:
        ConfigError: names the nearest.
    """
    known = list(known)
    for name in names:
        if name not in known:
            near = find_nearest(name, known)
            raise ConfigError(
                f"there is no such {what}",
                field=place,
                found=shorten_value(name),
                allowed=", ".join(known),
                remedy=f"did you mean {near[0]}?" if near else "",
            )


def check_labels(form: RubricForm) -> None:
    """Refuse labels without a score, or that no reader can tell apart.

    Raises:
        ConfigError: names the field.
    """
    if form.reply.reader == "score":
        low, high = form.labels.get("low"), form.labels.get("high")
        if set(form.labels) != set(ENDS) or low is None or high is None or not low < high:
            raise ConfigError(
                "the labels of a score are the ends of its range",
                field="labels",
                found=shorten_value(dict(form.labels)),
                allowed="{low: NUMBER, high: a greater NUMBER}",
            )
        if max(abs(low), abs(high)) > _FARTHEST or high - low < _NARROWEST:
            raise ConfigError(
                "this range cannot be read from a reply",
                field="labels",
                found=f"{low:g} to {high:g}",
                allowed=f"ends within {_FARTHEST:,}, at least {_NARROWEST:g} apart",
            )
        return
    if len(form.labels) < 2:
        raise ConfigError(
            "a rubric needs two labels",
            field="labels",
            found=shorten_value(dict(form.labels)),
            allowed="{good: 1.0, bad: 0.0}",
        )
    for label, score in form.labels.items():
        if not label.strip() or not 0.0 <= score <= 1.0:
            raise ConfigError(
                "this is no label with a score",
                field=f"labels.{label}",
                found=f"{score:g}",
                allowed="a text, and 0 to 1",
                remedy="give the best label 1.0; what it earns is the reward policy's to say",
            )
    if len(set(form.labels.values())) < 2:
        raise ConfigError(
            "all labels earn the same, so no verdict and no attack makes a difference",
            field="labels",
            found=shorten_value(dict(form.labels)),
            allowed="scores that differ, such as 1.0 and 0.0",
        )
    _check_words(form)


def _check_words(form: RubricForm) -> None:
    seen: dict[str, str] = {}
    for word in form.words:
        bare = _skeletonise(word)
        if not bare or bare in seen or len(word) > _LONGEST_WORD or any(map(_is_unseen, word)):
            raise ConfigError(
                "labels that overlap: no reader can tell them apart" if bare in seen else "this is no word for a label",
                field="reply.words" if form.reply.words else "labels",
                found=f"{seen[bare]} and {word}" if bare in seen else shorten_value(word),
                allowed=f"words of at most {_LONGEST_WORD} letters, without line ends and unseen characters, that "
                "differ by more than capitals, marks, blanks and letters that look alike",
                remedy="rename one of them",
            )
        seen[bare] = word


def check_reply(form: RubricForm) -> None:
    """Refuse members and words that do not fit the reader.

    Raises:
        ConfigError: names the field.
    """
    reply = form.reply
    for name, value in (("verdict", reply.verdict), ("reasoning", reply.reasoning)):
        if (value or name == "verdict") and not _NAME.fullmatch(value):
            raise ConfigError(
                "this is no name of a member",
                field=f"reply.{name}",
                found=shorten_value(value),
                allowed="letters and digits",
            )
    if reply.reasoning and reply.reader not in ("json", "score"):
        raise ConfigError(
            "such a reply has no member for reasons",
            field="reply.reasoning",
            found=f"{reply.reasoning}, reader {reply.reader}",
            allowed="reader json or score",
            remedy="remove it; with reader last_line any text may stand before the last line",
        )
    taken = {NUMBER, VERDICTS} if form.numbered else set()
    for name, value in (("verdict", reply.verdict), ("reasoning", reply.reasoning)):
        if value.lower() in taken:
            raise ConfigError(
                "this member is the form's own where several criteria are answered at once",
                field=f"reply.{name}",
                found=value,
                allowed=f"not {NUMBER} and {VERDICTS}",
            )
    if reply.reasoning.lower() == reply.verdict.lower():
        raise ConfigError(
            "two members have one name", field="reply.reasoning", found=reply.reasoning, allowed=f"not {reply.verdict}"
        )
    if not reply.words:
        return
    if reply.reader == "score":
        raise ConfigError(
            "a score has no words", field="reply.words", found=shorten_value(dict(reply.words)), remedy="remove it"
        )
    check_known(reply.words.values(), form.labels, "reply.words", "label")
    if unsaid := set(form.labels) - set(reply.words.values()):
        raise ConfigError(
            "no word says this label",
            field="reply.words",
            found=", ".join(sorted(unsaid)),
            allowed="a word for each label",
        )
