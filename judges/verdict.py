"""The reader of verdicts that every rubric uses: what a judge's reply states as its own, or nothing.

1. Thinking is dropped, with or without its opening tag; one fence around the whole reply is taken off.
2. A reply that is the rubric's own form and nothing else is read as that: text in its strings is data.
3. Where a rubric allows other text around, every statement of a verdict is looked for outside of code, quoted lines and quotes. All
   must agree, and one must stand where a verdict stands: at the reply's end, or in a whole object at its beginning. Anything else is
   unparseable, because a judge that repeats the text it judges may repeat verdicts that the text holds.

Everything is linear in the length of the reply.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from gavel.judges.types import Unparseable, Verdict
from gavel.models.errors import shorten
from gavel.models.quoting import Regions, find_code_spans, find_fences
from gavel.models.thinking import split_thinking

_WHOLE_FENCE = re.compile(r"\A(`{3,}+|~{3,}+)[ \t]*+[\w+-]{0,20}+[ \t]*+\n")
_VERDICT_LABELS = ("", "json")
_DECORATION = " \t\r\n*_`\"'#."
_BLANKS_AND_MARKS = " \t\r\n*_`.~!"
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "„": "“", "»": "«", "「": "」"}
_ATTRIBUTED = re.compile(
    r"\b(?:claim|say|said|hold|state|contain|writ|wrote|quot|inject|includ|print|output|read|text|line|repl|response|candidate|with)\w*"
    r"[^.!?;\n]{0,40}\Z",
    re.IGNORECASE,
)
"""The end of a sentence that says what somebody else wrote."""
_OWN = re.compile(r"\b(?:verdict|therefore|thus|hence|conclusion|decision|final)\b[^.!?;\n]{0,30}\Z", re.IGNORECASE)
_INTRODUCED = re.compile(
    r"\b(?:candidate|assistant|policy|it|they|repl(?:y|ies)|response|answer|text|user|message)\b[^.!?;\n]{0,40}"
    r"\b(?:says?|said|wrote|writes?|ends?|ended|reads?|states?|stated|contains?|outputs?|printed|prints?|claims?|was|includes?|included)\b"
    r"[^.!?;,\n]{0,20}[:：][\s*_`]{0,9}\Z",
    re.IGNORECASE,
)
"""The end of a line that says that what follows is what somebody else wrote."""
_CURLY = re.compile("“[^“”]*”|«[^«»]*»|„[^„“”]*[“”]")
_STRAIGHT = re.compile('"')
_LINE = 200
"""Characters; a longer line is prose, never a verdict alone."""
_SENTENCE = 120
"""Characters before a statement in which its own sentence is looked at."""
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
    whole: bool = False  # an object that also holds its reasoning


@dataclass(frozen=True, slots=True)
class VerdictForm:
    """The verdicts a rubric reads from a reply.

    ``labels`` maps words in lower case to labels; ``member`` is the name of the verdict in a JSON object.
    """

    labels: Mapping[str, str]
    member: str = "verdict"
    _marker: re.Pattern[str] = field(init=False, repr=False)
    _line: re.Pattern[str] = field(init=False, repr=False)
    _named: re.Pattern[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        words = "|".join(sorted(map(re.escape, self.labels), key=len, reverse=True))
        link = r"[ \t*_`\"':：=]{0,20}"
        named = rf"(?:final[ \t]{{1,4}})?(?:verdict|answer)\b{link}"
        patterns = {
            "_marker": rf"\[\[\s{{0,9}}({words})\s{{0,9}}\]\]",
            "_line": rf"(?:{named})?({words})",
            "_named": rf"\bverdict\b{link}(?:is\b{link})?({words})\b",
        }
        for name, pattern in patterns.items():
            object.__setattr__(self, name, re.compile(pattern, re.IGNORECASE))

    def read(self, text: str) -> Verdict:
        """Read a reply: the object or a bare true or false alone (``exact``), an object in other text or in a fence (``object``), a
        ``[[YES]]`` (``marker``), or a last line that is nothing but a verdict (``last_line``).

        Raises:
            Unparseable: no verdict, several that differ, or thinking that never ends.
        """
        body, unwrapped = visible_reply(text)
        found = self._of_object(load_json(body)) or self._bare(body)
        if found is not None:
            return Verdict(found[0], "object" if unwrapped else "exact", reasoning=found[1])
        stated, shown = self._statements(body)
        own = [one for one in stated if shown.is_own(one)]
        if not own:
            raise Unparseable(f"the reply states no verdict: {shorten(text)}")
        # A verdict in a block of its own looks like one that is shown: then all that are shown must agree with it too.
        counted = stated if any(shown.in_shown_block(one.start) for one in own) else [one for one in stated if not shown.quoted(one)]
        if len({one.label for one in counted}) > 1:
            raise Unparseable(f"the reply states two verdicts: {shorten(text)}")
        best = min(own, key=lambda one: _HOW.index(one.how))
        return Verdict(best.label, best.how, reasoning=best.reasoning)

    def _bare(self, body: str) -> tuple[str, str] | None:
        return (self.labels[body], "") if body in ("true", "false") and body in self.labels else None

    def _of_object(self, found: Any) -> tuple[str, str] | None:
        """Return label and reasoning of an object; members that stand twice must say the same."""
        if not isinstance(found, _Pairs):
            return None
        said = [value for name, value in found if name.strip().lower() == self.member]
        labels = {self.labels.get(str(value).strip().lower()) if isinstance(value, str | bool) else None for value in said}
        if len(labels) > 1:
            raise Unparseable(f"the reply's object has `{self.member}` twice")
        label = labels.pop() if labels else None
        reasoning = next((value for name, value in found if name.strip().lower() == "reasoning" and isinstance(value, str)), "")
        return None if label is None else (label, reasoning)

    def _statements(self, body: str) -> tuple[list[_Stated], _Shown]:
        objects = list(self._objects(body))
        shown = _Shown(body, objects)
        words = [one for one in self._words(body) if not shown.in_object(one.start)]
        return [*objects, *words, *self._lines(body, shown)], shown

    def _objects(self, body: str) -> Iterator[_Stated]:
        for start, end, found in _find_objects(body):
            if (read := self._of_object(found)) is not None:
                yield _Stated(start, end, read[0], "object", read[1], whole=any(name.lower() == "reasoning" for name, _ in found))

    def _words(self, body: str) -> Iterator[_Stated]:
        for pattern, how in ((self._marker, "marker"), (self._named, "")):
            for match in pattern.finditer(body):
                yield _Stated(match.start(), match.end(), self.labels[match[1].lower()], how)

    def _lines(self, body: str, shown: _Shown) -> Iterator[_Stated]:
        """Yield the last line if it is a verdict; other lines that are one count too, where they name it or are the first."""
        position = 0
        for line in body.splitlines(keepends=True):
            start, position = position, position + len(line)
            last = position >= shown.tail
            said = self._line.fullmatch(line.strip(_DECORATION + "!")) if len(line) < _LINE or last else None
            if said is None or shown.in_object(start) or not (last or start == 0 or said.start(1)):
                continue
            yield _Stated(start, position, self.labels[said[1].lower()], "last_line" if last and not _closes_quote(line) else "")
            if last:
                return


_HOW = ("object", "marker", "last_line")
"""What is named where several agree."""


def visible_reply(text: str) -> tuple[str, bool]:
    """Return a reply without its thinking and without a fence around the whole of it, trimmed, and whether there was a fence.

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
    """Return a JSON value, its objects as lists of pairs (``_Pairs``) so that a member that stands twice is seen; None for no JSON."""
    if not text.startswith(("{", "[", '"')):
        return None
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def read_members(text: str, names: tuple[str, ...], *, wrapper: str = "") -> Mapping[str, Any] | None:
    """Return members of the JSON object that a whole text is, None where a name is missing or the text is something else.

    Args:
        text: a reply as ``visible_reply`` returns it.
        names: the members wanted; others are left out.
        wrapper: the name of the only member of an object around the one that is meant, if there may be one.

    Raises:
        Unparseable: a member stands twice with different values.
    """
    found = load_json(text)
    if wrapper and isinstance(found, _Pairs) and len(found) == 1 and found[0][0] == wrapper:
        found = found[0][1]
    if not isinstance(found, _Pairs):
        return None
    read: dict[str, Any] = {}
    for name, value in found:
        if name in names and read.setdefault(name, value) != value:
            raise Unparseable(f"the reply's object has `{name}` twice")
    return read if len(read) == len(names) else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


# Line breaks within strings are read: models write them, and nothing else can be meant.
_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_Pairs, parse_constant=_refuse)


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


def _closes_quote(line: str) -> bool:
    """Tell whether a line ends a quotation that began before it."""
    return line.count('"') % 2 == 1 or any(line.count(closing) > line.count(opening) for opening, closing in ("“”", "«»"))


class _Shown:
    """What of a reply is only shown: code, quoted lines, and what stands in quotation marks. ``head`` and ``tail`` are where its text
    begins and ends, blanks and marks aside."""

    def __init__(self, body: str, objects: Sequence[_Stated]) -> None:
        self._body = body
        self._objects = Regions([one.start for one in objects], [one.end for one in objects])
        self._fences, self._spans = find_fences(body), find_code_spans(body)
        self._quotes, self._lines = _regions(_quotations(body, self._objects)), _regions(_quoted_lines(body))
        self.tail = len(body.rstrip(_BLANKS_AND_MARKS))
        self.head = len(body) - len(body.lstrip(_BLANKS_AND_MARKS))
        self._own = self._own_fences()

    def in_object(self, position: int) -> bool:
        return self._objects.holds(position)

    def in_shown_block(self, position: int) -> bool:
        """Tell whether a place lies in a fence or a code span, be it the judge's own."""
        return self._fences.holds(position) or self._spans.holds(position)

    def quoted(self, one: _Stated) -> bool:
        """Tell whether a statement is only shown; the judge's own block at the end is not."""
        if self._lines.holds(one.start) or (self._fences.holds(one.start) and not self._own.holds(one.start)):
            return True
        if one.how == "last_line":
            return False
        if self._spans.holds(one.start):  # one code span that is the whole last line is the judge's own
            before = self._body[max(one.start - _SENTENCE, 0) : one.start].rpartition("\n")[2]
            return one.end < self.tail or bool(before.strip(_DECORATION))
        if self._quotes.holds(one.start):
            return True
        before, after = self._body[max(one.start - 1, 0) : one.start], self._body[one.end : one.end + 1]
        return before in _QUOTES and after != "" and after in (_QUOTES[before], *".,;!?")

    def is_own(self, one: _Stated) -> bool:
        """Tell whether a statement stands where a judge's verdict stands, and its sentence does not say that others wrote it."""
        if not one.how or self.quoted(one) or self._introduced(one.start):
            return False
        if one.how == "last_line":
            return True
        if one.whole and one.start <= self.head:
            return True
        if one.end < self.tail:
            return False
        before = self._body[max(one.start - _SENTENCE, 0) : one.start].rpartition("\n")[2]
        return _OWN.search(before) is not None or _ATTRIBUTED.search(before) is None

    def _introduced(self, start: int) -> bool:
        """Tell whether the line before the statement's own, or before its fence, says that others wrote what follows."""
        start = self._fences.start_of(start)
        line = self._body.rfind("\n", 0, start) + 1
        if self._body[line:start].strip(_DECORATION):
            return False
        before = self._body[max(line - _SENTENCE, 0) : line].rstrip().rpartition("\n")[2]
        return _INTRODUCED.search(before) is not None and _OWN.search(before) is None

    def _own_fences(self) -> Regions:
        """Return the fences at the beginning and at the end that hold one object or one line and nothing else: so judges write their
        verdict."""
        places = dict.fromkeys((0, len(self._fences.starts) - 1)) if self._fences.starts else ()
        found = [(self._fences.starts[place], self._fences.ends[place]) for place in places]
        return _regions(
            (start, end)
            for start, end in found
            if (start <= self.head or end >= len(self._body.rstrip())) and self._holds_one_statement(start, end)
        )

    def _holds_one_statement(self, start: int, end: int) -> bool:
        label, _, inner = self._body[start:end].partition("\n")
        inner = inner.rstrip().rpartition("\n")[0].strip()
        first = self._body.find("{", start)
        one_object = inner.startswith("{") and (first, first + len(inner)) in zip(self._objects.starts, self._objects.ends, strict=True)
        return label.strip(" `~\t").lower() in _VERDICT_LABELS and (one_object or "\n" not in inner)


def _quotations(text: str, objects: Regions) -> Iterator[tuple[int, int]]:
    """Yield what stands between quotation marks: curly ones over lines, straight ones within one, where they can be paired."""
    found = [(match.start(), match.end()) for match in _CURLY.finditer(text)]
    position = 0
    for line in text.splitlines(keepends=True):
        if '"' in line:
            marks = [position + mark.start() for mark in _STRAIGHT.finditer(line) if not objects.holds(position + mark.start())]
            if len(marks) % 2 == 0:
                found += zip(marks[::2], (mark + 1 for mark in marks[1::2]), strict=True)
        position += len(line)
    end = -1
    for start, stop in sorted(found):
        if start >= end:
            yield start, stop
            end = stop


def _quoted_lines(text: str) -> Iterator[tuple[int, int]]:
    position = 0
    for line in text.splitlines(keepends=True):
        if line[:4].lstrip().startswith(">"):
            yield position, position + len(line)
        position += len(line)


def _regions(pairs: Iterable[tuple[int, int]]) -> Regions:
    found = list(pairs)
    return Regions([start for start, _ in found], [end for _, end in found])
