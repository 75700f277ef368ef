"""Groups of rewards, and their advantages in exact fractions by NeMo-RL's rule: divided by ``std + 1e-6``, unless the
spread is 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

TENTHS = tuple(Fraction(number, 10) for number in range(11))
THIRDS = tuple(Fraction(number, 3) for number in range(4))
EPSILON = 1e-6


def groups(sizes: Sequence[int] = tuple(range(2, 33))) -> Iterator[tuple[list[Fraction], int | None]]:
    """Yield groups of every size, one odd out and mixed, whole and with one sample lost: rewards, and the lost one's
    place.
    """
    for size in sizes:
        for value in (*TENTHS, *THIRDS):
            for odd in (Fraction(1), Fraction(0)):
                yield [odd, *[value] * (size - 1)], None
                yield [odd, *[value] * (size - 1)], size - 1
                yield [odd, *[value] * (size - 1)], 0
        for values in (TENTHS, THIRDS):
            mixed = [values[place * 7 % len(values)] for place in range(size)]
            halves = [values[1] if place % 2 else values[2] for place in range(size)]
            for rewards in (mixed, halves):
                yield rewards, None
                yield rewards, size // 2


def wanted_advantages(
    rewards: Sequence[Fraction], lost: int | None, *, leave_one_out: bool, normalize: bool
) -> list[float]:
    """Return each sample's advantage; a lost one has none, and so has one that is alone."""
    kept = [place for place in range(len(rewards)) if place != lost]
    found = [0.0] * len(rewards)
    if len(kept) < 2:
        return found
    total, squares = (
        sum((rewards[place] for place in kept), Fraction(0)),
        sum((rewards[place] ** 2 for place in kept), Fraction(0)),
    )
    for place in kept:
        out = int(leave_one_out)
        count, first = len(kept) - out, total - out * rewards[place]
        second = squares - out * rewards[place] ** 2
        mean, variance = first / count, (second - first**2 / count) / max(count - 1, 1)
        found[place] = float(rewards[place] - mean)
        if normalize and variance:
            found[place] /= math.sqrt(variance) + EPSILON
    return found
