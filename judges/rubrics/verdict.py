"""The reader of verdicts that every rubric uses: what a judge's reply states as its own, or nothing.

1. Thinking is dropped, with or without its opening tag; one fence around the whole reply is taken off.
2. A reply that is the rubric's own form and nothing else is read as that: text in its strings is data.
3. Where a rubric allows other text around, every statement of a verdict is looked for outside of code, quoted lines and
   quotes. All must agree, and one must stand where a verdict stands: at the reply's end, or in a whole object at its
   beginning. Anything else is unparseable, because a judge that repeats the text it judges may repeat verdicts that the
   text holds.

Everything is linear in the length of the reply.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from gavel.judges.rubrics.speaking import (
    DECORATION,
    LINK,
    NEAR,
    Shown,
    is_disowned,
    is_own_lead,
    is_quote_end,
    is_verdict_named,
    is_whole_quote,
)
from gavel.judges.types import Unparseable, Verdict
from gavel.models.errors import shorten_value
from gavel.models.texts.quoting import Regions
from gavel.models.texts.thinking import split_thinking

_WHOLE_FENCE = re.compile(r"\A(`{3,}+|~{3,}+)[ \t]*+[\w+-]{0,20}+[ \t]*+\n")
_LINE = 200
"""Characters; a longer line is prose, never a verdict alone."""
_OBJECT = re.compile(r"\{\s*+[\"}]")
_MOST_FAILURES = 50


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object as they stand, with those that stand twice."""


class _Stated(NamedTuple):
    start: int
    end: int
    label: str
    how: str
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class VerdictForm:
    """The verdicts a rubric reads from a reply.

    ``labels`` maps words in lower case to labels; ``member`` and ``reasons`` are the names, in lower case, of the
    verdict and of its reasons in a JSON object, and ``member`` is what may name a verdict in a line.
    """

    labels: Mapping[str, str]
    member: str = "verdict"
    reasons: str = "reasoning"
    _marker: re.Pattern[str] = field(init=False, repr=False)
    _line: re.Pattern[str] = field(init=False, repr=False)
    _explained: re.Pattern[str] = field(init=False, repr=False)
    _named: re.Pattern[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        words, member = self.words, re.escape(self.member)
        tight = r"[ \t*_`\"']{0,9}(?:[:：=]|is\b)[ \t*_`\"']{0,9}"  # "grade: good", not "grade good answers"
        link = r"[ \t*_`\"':：=]{0,20}"
        opening, closing = (
            r"(?:\[\[|<(?:verdict|answer)>|\\boxed\{)\s{0,9}",
            r"\s{0,9}(?:\]\]|</(?:verdict|answer)>|\})",
        )
        patterns = {
            "_marker": rf"{opening}({words}){closing}",
            "_line": rf"(.{{0,{_LINE}}}?)(?<!\w)(?:{opening})?({words})(?:{closing})?",
            "_explained": rf"([^.!?]{{0,60}}?)(?<!\w)({words})[*_`]{{0,3}}(?:\.[*_`]{{0,3}}[ \t]| [-–—] )(?!\d)",
            "_named": rf"\b(?:verdict\b{link}(?:is\b{link})?|{member}\b{tight})({words})(?!\w)",
        }
        for name, pattern in patterns.items():
            object.__setattr__(self, name, re.compile(pattern, re.IGNORECASE))

    @property
    def words(self) -> str:
        """A pattern of what may be said as a verdict, without groups; the longest first."""
        return "|".join(sorted(map(re.escape, self.labels), key=len, reverse=True))

    def find_label(self, said: object) -> str | None:
        """Return the label of what a judge said, None for what is no verdict."""
        return self.labels.get(str(said).strip().lower()) if isinstance(said, str | bool) else None

    def read_verdict(self, text: str) -> Verdict:
        """Read a reply: the object or a bare true or false alone (``exact``), an object in other text or in a fence
        (``object``), a ``[[YES]]`` (``marker``), or a last or first line that is nothing but a verdict (``last_line``,
        ``first_line``).

        Raises:
            Unparseable: no verdict, several that differ, or thinking that never ends.
        """
        body, unwrapped = extract_visible_reply(text)
        found = self._read_object(load_json(body)) or self._read_bare(body)
        if found is not None:
            return Verdict(found[0], "object" if unwrapped else "exact", reasoning=found[1])
        stated, shown = self._find_statements(body)
        own = [one for one in stated if _is_own(one, body, shown)]
        if not own:
            raise Unparseable(f"the reply states no verdict: {shorten_value(text)}")
        # A verdict in a block of its own looks like one that is shown: then all that are shown must agree with it too.
        counted = (
            stated
            if any(shown.is_in_shown_block(one.start) for one in own)
            else [one for one in stated if not _is_shown(one, shown)]
        )
        if len({one.label for one in counted}) > 1:
            raise Unparseable(f"the reply states two verdicts: {shorten_value(text)}")
        best = min(own, key=lambda one: _HOW.index(one.how))
        return Verdict(best.label, best.how, reasoning=best.reasoning)

    def _read_bare(self, body: str) -> tuple[str, str] | None:
        return (self.labels[body], "") if body in ("true", "false") and body in self.labels else None

    def _read_object(self, found: Any) -> tuple[str, str] | None:
        """Return label and reasoning of an object; members that stand twice must say the same."""
        if not isinstance(found, _Pairs):
            return None
        said = [value for name, value in found if name.strip().lower() == self.member]
        labels = {self.find_label(value) for value in said}
        if len(labels) > 1:
            raise Unparseable(f"the reply's object has `{self.member}` twice")
        label = labels.pop() if labels else None
        reasoning = next(
            (value for name, value in found if name.strip().lower() == self.reasons and isinstance(value, str)), ""
        )
        return None if label is None else (label, reasoning)

    def _find_statements(self, body: str) -> tuple[list[_Stated], Shown]:
        objects = list(self._iter_objects(body))
        shown = Shown(body, Regions([one.start for one in objects], [one.end for one in objects]))
        words = [one for one in self._iter_words(body) if not shown.is_in_object(one.start)]
        return [*objects, *words, *self._iter_lines(body, shown)], shown

    def _iter_objects(self, body: str) -> Iterator[_Stated]:
        for start, end, found in _find_objects(body):
            if (read := self._read_object(found)) is not None:
                yield _Stated(start, end, read[0], "object", read[1])

    def _iter_words(self, body: str) -> Iterator[_Stated]:
        for pattern, how in ((self._marker, "marker"), (self._named, "")):
            for match in pattern.finditer(body):
                yield _Stated(match.start(), match.end(), self.find_label(match[1]) or "", how)

    def _iter_lines(self, body: str, shown: Shown) -> Iterator[_Stated]:
        """Yield the first and the last line if they are a verdict; others that name one count against them."""
        position = 0
        for line in body.splitlines(keepends=True):
            start, position = position, position + len(line)
            first, last = start <= shown.head < position, position >= shown.tail
            if (
                not shown.is_in_object(start)
                and (label := self.find_line_label(line, first=first, last=last)) is not None
            ):
                how = "" if is_quote_end(line) or not (first or last) else "last_line" if last else "first_line"
                if (first and last) or not is_whole_quote(line):
                    yield _Stated(start, position, label, how)
            if last:
                return

    def find_line_label(self, line: str, *, first: bool, last: bool) -> str | None:
        """Return the verdict that a line states: a whole one, or one that begins the reply or its last line and is
        explained there.
        """
        bare = line.strip(DECORATION)
        said = self._line.fullmatch(bare) if len(bare) <= _LINE else None
        if said is not None:
            return self.find_label(said[2]) if self._is_leading(said[1], alone=first or last) else None
        said = self._explained.match(bare) if first or last else None
        if (
            said is None
            or not (self._is_naming(said[1]) or (first and not said[1].strip(LINK)))
            or is_disowned(bare, said.end())
        ):
            return None
        return self.find_label(said[2])

    def _is_leading(self, words: str, *, alone: bool) -> bool:
        """Tell whether these words before a verdict in its line name it, or are none where it may stand ``alone``."""
        return self._is_naming(words) or (alone and not words.strip(DECORATION + LINK))

    def _is_naming(self, words: str) -> bool:
        return is_verdict_named(
            words if self.member == "verdict" else re.sub(rf"(?i)\b{re.escape(self.member)}\b", "verdict", words)
        )


def _is_shown(one: _Stated, shown: Shown) -> bool:
    return shown.is_only_shown(one.start, one.end, line=one.how.endswith("line"))


def _is_own(one: _Stated, body: str, shown: Shown) -> bool:
    """Tell whether a statement stands where a judge's verdict stands, and nothing says that others wrote it."""
    if not one.how or _is_shown(one, shown):
        return False
    if shown.is_reply_start(one.start) and one.how in ("object", "first_line"):
        return one.end >= shown.tail or not is_disowned(body, one.end)
    if one.end < shown.tail or shown.is_introduced(one.start):
        return False
    before = body[max(one.start - NEAR, 0) : one.start].rpartition("\n")[2]
    if one.how == "last_line":
        return True
    return is_own_lead(before, marked=True) and (
        shown.is_in_shown_block(one.start) or not is_quote_end(before + body[one.end :])
    )


_HOW = ("object", "marker", "last_line", "first_line")
"""What is named where several agree."""


def extract_visible_reply(text: str) -> tuple[str, bool]:
    """Return a reply without its thinking and without a fence around the whole of it, trimmed, and whether there was a
    fence.

    Raises:
        Unparseable: the thinking never ends, or nothing follows it.
    """
    body = text.strip()
    if load_json(body) is not None:
        return body, False  # tags in its strings are data
    split = split_thinking(text)
    if not split.finished:
        raise Unparseable("the thinking block never ends")
    body = split.answer.strip()
    if not body:
        raise Unparseable("the reply is empty")
    opening = _WHOLE_FENCE.match(body)
    if opening is None:
        return body, False
    inner = body[opening.end() :].removesuffix(opening[1])
    whole = len(inner) < len(body) - opening.end() and inner.endswith("\n") and opening[1] not in inner
    return (inner.strip(), True) if whole else (body, False)


def load_json(text: str) -> Any:
    """Return a JSON value, its objects as lists of pairs (``_Pairs``) so that a member that stands twice is seen; None
    for no JSON.
    """
    if not text.startswith(("{", "[", '"')):
        return None
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def read_members(text: str, names: tuple[str, ...], *, wrapper: str = "") -> Mapping[str, Any] | None:
    """Return members of the JSON object that a whole text is, None where a name is missing or the text is something
    else.

    Args:
        text: a reply as ``extract_visible_reply`` returns it.
        names: the members wanted; others are left out.
        wrapper: the name of the only member of an object around the one that is meant, if there may be one.

    Raises:
        Unparseable: a member stands twice with different values.
    """
    found = load_json(text)
    if wrapper and isinstance(found, _Pairs) and len(found) == 1 and found[0][0] == wrapper:
        found = found[0][1]
    read = merge_members(found, names)
    return read if read is not None and len(read) == len(names) else None


def merge_members(found: Any, names: Collection[str]) -> dict[str, Any] | None:
    """Return those members of an object read by ``load_json`` that are named, None for what is no object.

    Raises:
        Unparseable: a member stands twice with different values.
    """
    if not isinstance(found, _Pairs):
        return None
    read: dict[str, Any] = {}
    for name, value in found:
        if name in names and read.setdefault(name, value) != value:
            raise Unparseable(f"the reply's object has `{name}` twice")
    return read


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(constant)


# Line breaks within strings are read: models write them, and nothing else can be meant.
_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_Pairs, parse_constant=_refuse_constant)


def _find_objects(text: str) -> Iterator[tuple[int, int, _Pairs]]:
    """Yield each outermost JSON object; an open brace that begins none is passed over.

    Raises:
        Unparseable: so many braces begin no object that looking behind each would take too long.
    """
    position, failures = 0, 0
    while (brace := _OBJECT.search(text, position)) is not None:
        try:
            found, position = _DECODER.raw_decode(text, brace.start())
        except json.JSONDecodeError:
            failures += 1  # each may have looked at the whole text
            position = brace.start() + 1
        except (ValueError, RecursionError):
            raise Unparseable("the reply holds an object that cannot be read") from None
        else:
            yield brace.start(), position, found
        if failures > _MOST_FAILURES:
            raise Unparseable("the reply has too many braces that begin no object")
