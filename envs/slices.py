"""Slices of a run's figures by fields of the rows' own (``source.slice_fields``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from gavel.envs.sources import SLICES
from gavel.envs.types import Result

Row = TypeVar("Row")


def slice_rows(rows: Iterable[Row], results: Iterable[Result]) -> dict[str, list[Row]]:
    """Group rows, each of the result at the same place, by what stands in ``metadata.slices``; by the figure's suffix
    (``@level=hard``), sorted."""
    found: dict[str, list[Row]] = {}
    for row, result in zip(rows, results, strict=True):
        for field, value in (result.metadata.get(SLICES) or {}).items():
            found.setdefault(f"@{field}={value}", []).append(row)
    return dict(sorted(found.items()))
