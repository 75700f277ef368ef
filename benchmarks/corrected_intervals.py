"""How often the corrected intervals of a judge's shares hold the true share, and what reviewed rows buy.

    python -m benchmarks.corrected_intervals [--draws 4000]

Simulated judges of stated sensitivity and specificity grade 1,000 rows, of which a random part is labelled. The
coverage over all settings must be 95 % within 2 points for each method, and no setting may be below 91 %. Ends with 1
where a bar is missed.
"""

from __future__ import annotations

import argparse
import itertools
import sys

import numpy as np

from gavel.judges.calibration.corrected import CorrectedShare, correct_share
from gavel.judges.calibration.statistics import Interval

ROWS = 1_000
SHARES, ERRORS, LABELLED = (0.2, 0.5, 0.8), ((0.95, 0.95), (0.9, 0.8), (0.8, 0.9), (0.99, 0.7)), (50, 100, 200, 500)
BAR, LEAST = 2.0, 91.0
NAMES = ("yes", "no")


def draw_share(draw: np.random.Generator, share: float, error: tuple[float, float], labelled: int) -> CorrectedShare:
    """Return what one simulated run comes to."""
    truth = draw.random(ROWS) < share
    judged = np.where(truth, draw.random(ROWS) < error[0], draw.random(ROWS) >= error[1])
    words = [NAMES[0] if one else NAMES[1] for one in judged]
    people = [(words[place], NAMES[0] if truth[place] else NAMES[1]) for place in range(labelled)]
    return correct_share(words, people, NAMES[0])


def main() -> int:
    """Print coverage and widths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--draws", type=int, default=4_000)
    options = parser.parse_args()
    draw = np.random.default_rng(0)
    covered: dict[str, list[float]] = {"powered": [], "rogan_gladen": []}
    print(
        f"{'labelled':>8}{'share':>7}{'sens.':>7}{'spec.':>7}{'raw bias':>10}"
        + "".join(f"{name + ' covers':>22}{'width':>7}" for name in covered)
    )
    for labelled, share, error in itertools.product(LABELLED, SHARES, ERRORS):
        found = [draw_share(draw, share, error, labelled) for _ in range(options.draws)]
        cells = ""
        for name, values in covered.items():
            intervals = [one.powered if name == "powered" else one.rogan_gladen for one in found]
            values.append(100 * float(np.mean([_holds(one, share) for one in intervals])))
            cells += f"{values[-1]:>20.1f} %{np.mean([_measure_width(one) for one in intervals]):>7.3f}"
        bias = float(np.mean([one.judged for one in found])) - share
        print(f"{labelled:>8}{share:>7.1f}{error[0]:>7.2f}{error[1]:>7.2f}{bias:>+10.3f}{cells}")
    passed = True
    for name, values in covered.items():
        mean, least = float(np.mean(values)), min(values)
        passed &= abs(mean - 95) <= BAR and least >= LEAST
        print(f"{name}: {mean:.1f} % over all settings (bar 95 ± {BAR:g}), the least {least:.1f} % (bar {LEAST:g})")
    return 0 if passed else 1


def _holds(interval: Interval, share: float) -> bool:
    return interval.low is None or interval.high is None or interval.low <= share <= interval.high


def _measure_width(interval: Interval) -> float:
    return 1.0 if interval.low is None or interval.high is None else interval.high - interval.low


if __name__ == "__main__":
    sys.exit(main())
