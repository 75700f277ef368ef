"""The deadline of a session: no row is begun that would not end in time.

How long a row takes is learnt from the rows themselves: the slowest of the last ``_REMEMBERED`` that ended, or the
oldest that is still running if that has taken longer. A row may begin while the time left exceeds that and the margin.
Rows in work always end as they would have, so a session outlasts its deadline only by what a row takes longer than
every row before it.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from gavel.models.errors import ConfigError, shorten_value

Duration = str | float
"""What a config may say: seconds, or a text such as ``90``, ``45m``, ``2h``, ``1h30m``."""

_REMEMBERED = 200
_LOOK_AGAIN_S = 0.5
_SHARE, _LEAST_S, _MOST_S = 0.05, 1.0, 60.0
_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_PARTS = re.compile(r"(\d+(?:\.\d+)?)([dhms])")
_WHOLE = re.compile(rf"(?:{_PARTS.pattern})+")


def parse_seconds(value: Duration, key: str) -> float:
    """Return a duration in seconds.

    Raises:
        ConfigError: it is none, or negative; names ``key``.
    """
    text = str(value).strip().lower()
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        return float(text)
    if not _WHOLE.fullmatch(text):
        raise ConfigError(
            "this is no duration",
            field=key,
            found=shorten_value(value),
            allowed="seconds, or a number with d, h, m or s: 90, 45m, 2h, 1h30m",
        )
    return sum(float(number) * _UNITS[unit] for number, unit in _PARTS.findall(text))


@dataclass(slots=True)
class Deadline:
    """When a session is to be over; times in seconds of ``clock``.

    ``find_reached`` says why no row may begin any more, and is asked before each; ``record_row`` is told how long each
    row took.
    """

    at: float
    margin: float
    clock: Callable[[], float] = time.monotonic
    near: bool = False
    _took: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _oldest: float = 0.0
    _looked: float = float("-inf")

    @classmethod
    def make_deadline(cls, within: Duration | None, margin: Duration | None) -> Deadline | None:
        """Return the deadline that begins to run now, or None where none is set; the margin is by default a twentieth
        of it, from 1 s to 60 s.

        Raises:
            ConfigError: no duration, or a margin that leaves nothing.
        """
        if within is None:
            if margin is not None:
                raise ConfigError(
                    "a margin of no deadline",
                    field="deadline_margin",
                    found=shorten_value(margin),
                    remedy="set deadline=…, or remove it",
                )
            return None
        length = parse_seconds(within, "deadline")
        spare = (
            min(max(length * _SHARE, _LEAST_S), _MOST_S) if margin is None else parse_seconds(margin, "deadline_margin")
        )
        if length <= spare:
            raise ConfigError(
                "nothing fits before this deadline",
                field="deadline",
                found=shorten_value(within),
                allowed=f"more than the margin of {spare:g} s",
                remedy="raise it, or lower deadline_margin",
            )
        return cls(time.monotonic() + length, spare)

    def record_row(self, seconds: float) -> None:
        """Learn how long a row took."""
        self._took.append(seconds)

    def find_reached(self, oldest: Callable[[], float]) -> str | None:
        """Say why no row may begin, or return None.

        Args:
            oldest: the age in seconds of the oldest row in work; asked now and then, for it looks at each.
        """
        now = self.clock()
        if now - self._looked >= _LOOK_AGAIN_S:
            self._looked, self._oldest = now, oldest()
        slowest = max((self._oldest, *self._took))
        left = self.at - now
        if left > slowest + self.margin:
            return None
        self.near = True
        return (
            f"the deadline is near: {max(left, 0):.0f} s are left, a row takes up to {slowest:.1f} s, the margin "
            f"is {self.margin:g} s"
        )
