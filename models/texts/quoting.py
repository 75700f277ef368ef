"""Which parts of a text are code: fenced blocks and code spans, as Markdown has them, found in one pass.

Used where a mark means something only if it is said, not shown: the tags around thinking, a judge's verdict.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n]*)", re.MULTILINE)
_TICKED_LINE = re.compile("^[^`\\n]*+`[^\\n]*", re.MULTILINE)
_TICKS = re.compile("`+")


@dataclass(frozen=True, slots=True)
class Regions:
    """Parts of a text, ``starts`` and ``ends`` in rising order and apart from one another."""

    starts: Sequence[int]
    ends: Sequence[int]

    def contains(self, position: int) -> bool:
        """Tell whether the character at ``position`` lies in one of the parts."""
        place = bisect_right(self.starts, position) - 1
        return place >= 0 and position < self.ends[place]

    def start_of(self, position: int) -> int:
        """Return where the part begins that holds ``position``; without one, ``position``."""
        return self.starts[bisect_right(self.starts, position) - 1] if self.contains(position) else position


NOWHERE = Regions((), ())


def find_fences(text: str) -> Regions:
    """Return the fenced blocks, marks included.

    A fence that never closes is none: nobody knows what it was meant to hold.
    """
    if "```" not in text and "~~~" not in text:
        return NOWHERE
    return _make_regions(_find_fences(text))


def find_code_spans(text: str) -> Regions:
    """Return the code spans, backticks included; a span does not go over a line's end."""
    return _make_regions(_find_spans(text)) if "`" in text else NOWHERE


def _make_regions(found: Iterator[tuple[int, int]]) -> Regions:
    pairs = list(found)
    return Regions([start for start, _ in pairs], [end for _, end in pairs])


def _find_fences(text: str) -> Iterator[tuple[int, int]]:
    opened, start = "", 0
    for mark in _FENCE.finditer(text):
        if not opened:
            # Markdown: the label after backticks holds none.
            opened, start = ("", 0) if mark[1][0] == "`" and "`" in mark[2] else (mark[1], mark.start())
        elif mark[1][0] == opened[0] and len(mark[1]) >= len(opened) and not mark[2].strip():
            yield start, min(mark.end() + 1, len(text))
            opened = ""


def _find_spans(text: str) -> Iterator[tuple[int, int]]:
    for line in _TICKED_LINE.finditer(text):
        yield from _pair_spans(line[0], line.start())


def _pair_spans(line: str, offset: int) -> Iterator[tuple[int, int]]:
    """Pair each run of backticks with the next one of its length."""
    runs = [(run.start(), run.end()) for run in _TICKS.finditer(line)]
    partner: list[int | None] = [None] * len(runs)
    seen: dict[int, int] = {}
    for place in range(len(runs) - 1, -1, -1):
        length = runs[place][1] - runs[place][0]
        partner[place] = seen.get(length)
        seen[length] = place
    place = 0
    while place < len(runs):
        other = partner[place]
        if other is not None:
            yield offset + runs[place][0], offset + runs[other][1]
            place = other
        place += 1
