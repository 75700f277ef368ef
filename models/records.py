"""``@record``, the frozen dataclass that everything here is made of. Of the standard library alone: what travels into a
trainer's own processes is imported by interpreters that have no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from pydantic import ConfigDict

T = TypeVar("T")

_STRICT: ConfigDict = {"extra": "forbid", "strict": True, "allow_inf_nan": False}


@dataclass_transform(frozen_default=True, kw_only_default=False)
def record(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen, slotted dataclass that ``codec.decode`` reads strictly.

    A class that stands in files on its own sets ``SCHEMA: ClassVar[str]`` (``gavel.<name>/<version>``).
    """
    made = dataclass(frozen=True, slots=True)(cls)
    made.__pydantic_config__ = _STRICT  # type: ignore[attr-defined]
    return made
