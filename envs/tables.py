"""Rows of a table in text: comma-separated (``.csv``) or tab-separated (``.tsv``), the first line naming the columns.

A cell is a text; an empty one is a field that the row does not have. ``a.b`` in the header is the field ``b`` of the
object ``a``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gavel.envs.types import TaskError
from gavel.models.codec import record
from gavel.models.errors import InputError, shorten_value

DELIMITERS: Mapping[str, str] = {".csv": ",", ".tsv": "\t"}
"""By how a file's name ends."""
_WORDS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}


@record
class Line:
    """One row: ``number`` counts lines from 1 (Parquet: rows; a table's row that spans lines: its first); ``error`` is
    set where ``row`` could not be read."""

    number: int
    row: Mapping[str, Any]
    error: TaskError | None = None


def read_table_rows(lines: Iterable[str], delimiter: str, where: str) -> Iterator[Line]:
    """Yield the rows below the header. Quoted cells may hold the delimiter, doubled quotes and line ends; empty lines
    are passed over.

    Args:
        lines: the text with its line ends; bytes that are no UTF-8 stand in it as lone surrogates.
        delimiter: what stands between cells.
        where: the file, for errors.

    Raises:
        InputError: the header names no columns, or one twice.
    """
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    columns: list[str] | None = None
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as failed:
            if columns is None:
                raise InputError("this header cannot be read", where=f"{where}:{start}", found=str(failed)) from None
            yield Line(
                start, {}, TaskError(f"this row cannot be read: {failed}", where=f"{where}:{start}", remedy=_QUOTING)
            )
            continue
        if cells is None:
            return
        if not any(cell.strip() for cell in cells):
            continue
        if columns is None:
            columns = _read_header(cells, delimiter, f"{where}:{start}")
        else:
            yield _make_line(columns, cells, start, f"{where}:{start}")


_QUOTING = 'write a quote inside a quoted cell twice ("") and close every quoted cell; or give the rows as .jsonl'


def _read_header(cells: list[str], delimiter: str, where: str) -> list[str]:
    columns = [cell.strip() for cell in cells]
    found = ", ".join(columns)
    if len(columns) == 1 and (
        other := next((sign for sign in _WORDS if sign != delimiter and sign in columns[0]), None)
    ):
        raise InputError(
            f"this header has no {_WORDS[delimiter]}",
            where=where,
            found=shorten_value(found),
            allowed=".csv with commas, .tsv with tabs",
            remedy=f"its columns seem to stand between {_WORDS[other]}: write them with {_WORDS[delimiter]}, or "
            f"rename the file",
        )
    if (bad := next((name for name in columns if not name or columns.count(name) > 1), None)) is not None:
        problem = f"this header names a column twice: {bad}" if bad else "a column of this header has no name"
        raise InputError(problem, where=where, found=shorten_value(found), allowed="a name of its own for each column")
    if (
        both := next((name for name in columns if any(other.startswith(f"{name}.") for other in columns)), None)
    ) is not None:
        raise InputError(
            f"the column {both} is a value and an object",
            where=where,
            found=shorten_value(found),
            allowed="one of them",
        )
    return columns


def _make_line(columns: list[str], cells: list[str], number: int, where: str) -> Line:
    if len(cells) != len(columns):
        return Line(
            number,
            {},
            TaskError(
                "this row has another number of cells than the header",
                where=where,
                found=f"{len(cells)}: {shorten_value(cells)}",
                allowed=str(len(columns)),
                remedy="quote cells that hold the delimiter; " + _QUOTING,
            ),
        )
    spoilt = next((column for column, cell in zip(columns, cells, strict=True) if not _is_text(cell)), None)
    if spoilt is not None:
        return Line(number, {}, TaskError("this cell is not UTF-8", where=where, field=spoilt, allowed="UTF-8"))
    row: dict[str, Any] = {}
    for column, cell in zip(columns, cells, strict=True):
        if cell.strip():
            *above, name = column.split(".")
            place = row
            for part in above:
                place = place.setdefault(part, {})
            place[name] = cell
    return Line(number, row)


def _is_text(cell: str) -> bool:
    return cell.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in cell)
