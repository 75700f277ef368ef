"""Which option a judge's free answer means: upstream's three steps, in their order (SpringCare/VERA-MH
``judge/llm_judge.py``, v1.2).

The steps are kept as they are, oddities included: an empty answer is contained in every option and so means the first
one.
"""

from __future__ import annotations

from collections.abc import Sequence


def match_option(options: Sequence[str], answer: str) -> str | None:
    """Return the option an answer means: the equal one, else the first that contains it or is contained in it; None for
    no match.

    Case and outer blanks of the answer do not count.
    """
    said = answer.lower().strip()
    for option in options:
        if option.lower().strip() == said:
            return option
    return next((option for option in options if option.lower() in said or said in option.lower()), None)


def choose_option(options: Sequence[str], answer: str) -> tuple[str, bool]:
    """Return the option an answer means, and whether it meant none, so that the first option stands in for it."""
    found = match_option(options, answer)
    return (options[0], True) if found is None else (found, False)
