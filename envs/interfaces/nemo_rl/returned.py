"""The fields of NeMo-RL's ``EnvironmentReturn``, which it unpacks by position: six where this was tested, more in later
versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

FIELDS = ("observations", "metadata", "next_stop_strings", "rewards", "terminateds", "answers")
FURTHER: Mapping[str, Callable[[Any], Any]] = {
    "mask_sample": lambda graded: ~graded,
    "valid_mask": lambda graded: graded,
}
"""Further fields that are known, made from a bool tensor ``[B]``: false where a sample ended ungraded."""


def list_unknown_fields(returned: Any) -> list[str]:
    """Return all fields of an ``EnvironmentReturn`` that cannot be filled, with their neighbours; none where it fits.

    A further field fits where it is known, or has a default.
    """
    fields = tuple(returned._fields)
    fits = fields[: len(FIELDS)] == FIELDS and all(
        name in FURTHER or name in returned._field_defaults for name in fields[len(FIELDS) :]
    )
    return [] if fits else list(fields)


def find_type() -> Any:
    """Return this process' ``EnvironmentReturn``; None where there is no NeMo-RL, as in the contract's own tests."""
    try:
        return import_module("nemo_rl.environments.interfaces").EnvironmentReturn
    except ModuleNotFoundError:
        return None


def fill_fields(returned: Any, values: Sequence[Any], graded: Any) -> tuple[Any, ...]:
    """Return what a step gives: the six values, and further fields where this NeMo-RL has some.

    Args:
        returned: see ``find_type``.
        values: of ``FIELDS``.
        graded: bool tensor ``[B]``.
    """
    further = () if returned is None else tuple(returned._fields[len(FIELDS) :])
    if not further:
        return tuple(values)
    made: tuple[Any, ...] = returned(*values, **{name: FURTHER[name](graded) for name in further if name in FURTHER})
    return made
