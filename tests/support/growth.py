"""How the time of a text function grows with its input."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

FLOOR = 0.02
"""CPU seconds; the input grows until a call takes that long, so that the clock's grain does not decide."""
LARGEST = 1_000_000
"""Characters; what takes less than the floor for these is quick enough."""


def growth(function: Callable[[str], object], shape: Callable[[int], str], *, start: int = 2_000) -> float:
    """Return the CPU time of ``function`` on a text twice as long, over that on the text: 2 where it is linear, 4 where
    quadratic.

    Each is the least of several tries; a ratio of 3 or more is measured again, because one busy moment can make it.
    """
    size = start
    while (seconds := _seconds(function, shape(size), 1)) < FLOOR and len(shape(size * 2)) <= LARGEST:
        size *= 2
    if seconds < FLOOR:
        return 1.0
    found = 9.9
    for _ in range(3):
        found = min(found, _seconds(function, shape(size * 2), 3) / max(_seconds(function, shape(size), 3), FLOOR / 2))
        if found < 3:
            break
    return found


def _seconds(function: Callable[[str], object], text: str, tries: int) -> float:
    best = float("inf")
    for _ in range(tries):
        gc.disable()
        begun = time.process_time()
        function(text)
        best = min(best, time.process_time() - begun)
        gc.enable()
    return best
