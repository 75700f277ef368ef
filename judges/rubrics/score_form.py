"""A number as a verdict, for the one reader of verdicts."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gavel.judges.rubrics.speaking import DECORATION
from gavel.judges.rubrics.verdict import VerdictForm

OUTSIDE = "out of range"
"""What a number beyond the range is read as: it contradicts any other verdict, and is none."""
_AROUND = DECORATION.replace("-", "")
"""What stands around a number and says nothing; a minus does."""
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class ScoreForm(VerdictForm):
    """A number from ``low`` to ``high``; what is read as its label is the number in its shortest form, or
    ``OUTSIDE``.
    """

    low: float = 0.0
    high: float = 1.0

    @property
    def words(self) -> str:
        """A pattern of a number, by itself or as one of the greatest (``7/10``)."""
        return rf"[+\-−–]?\d{{1,9}}(?:[.,]\d{{1,9}})?(?:[ ]?/[ ]?{re.escape(f'{self.high:g}')})?(?![\d/%]|[.,]\d)"

    def find_label(self, said: object) -> str | None:
        """Return the number in its shortest form, ``OUTSIDE`` for one out of range, None for what is no number."""
        if isinstance(said, bool) or not isinstance(said, int | float | str):
            return None
        text = str(said).partition("/")[0].strip().replace(",", ".").replace("−", "-").replace("–", "-")
        try:
            value = float(text)
        except ValueError:
            return None
        return f"{value:.9g}" if self.low <= value <= self.high else OUTSIDE

    def find_line_label(self, line: str, *, first: bool, last: bool) -> str | None:
        """Return the number that a whole line states; a line that only begins with one is an item of a list."""
        bare = line.strip(_AROUND)
        said = self._line.fullmatch(bare) if len(bare) <= _LONGEST else None
        return self.find_label(said[2]) if said is not None and self._is_leading(said[1], alone=first or last) else None
