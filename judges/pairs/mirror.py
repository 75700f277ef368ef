"""A rubric of pairs with the two texts in each other's place: the control for a judge that prefers a place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gavel.judges.form_types import Control, RubricForm
from gavel.judges.pairs.rules import FIRST, SECOND

SWAPPED = "@swapped"
"""Ends the name of a control whose texts changed places."""
_TURNED: Mapping[str, str] = {FIRST: SECOND, SECOND: FIRST}


def mirror_controls(form: RubricForm) -> tuple[Control, ...]:
    """Return each control with its texts in each other's place and the verdict that is right then, none for a rubric
    that is no pair's; one that stands among the form's own is left out.

    A judge that prefers a place fails one of each two, whatever it prefers.
    """
    own = [dict(control.slots) for control in form.controls]
    return tuple(control for control in _swap_controls(form) if dict(control.slots) not in own)


def _swap_controls(form: RubricForm) -> tuple[Control, ...]:
    if (pair := form.pair) is None:
        return ()
    return tuple(
        Control(
            f"{control.name}{SWAPPED}",
            pair.swap_slots(control.slots),
            tuple(_TURNED.get(label, label) for label in control.expected),
        )
        for control in form.controls
    )


def mirror_form(form: RubricForm) -> RubricForm:
    """Return a form whose second text is the graded one: its controls swapped, its labels' scores turned."""
    scores = {label: 1.0 - score for label, score in form.labels.items()}
    return replace(form, controls=_swap_controls(form), labels=scores)
