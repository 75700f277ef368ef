"""Cells of CSV that no spreadsheet computes."""

from __future__ import annotations

import re
import unicodedata

_FORMULA = ("=", "+", "-", "@")
_NUMBER = re.compile(r"[-+]?(\d+(?:\.\d*)?|\.\d+)([eE][-+]?\d+)?%?")


def escape_cell(cell: str) -> str:
    """Return a cell with an apostrophe before it where a spreadsheet would compute it: it begins, after blanks and
    control characters, with ``=``, ``+``, ``-`` or ``@``, in whatever width, and is no number; or it begins with a tab
    or a line's end."""
    shown = unicodedata.normalize("NFKC", cell).lstrip(_SKIPPED)
    computed = cell[:1] in ("\t", "\r", "\n") or shown.startswith(_FORMULA)
    return f"'{cell}" if computed and _NUMBER.fullmatch(cell) is None else cell


_SKIPPED = "".join(map(chr, range(33))) + "\u200b\u200e\u200f\u2060\ufeff"
