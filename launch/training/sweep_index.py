"""The index of a sweep, ``sweep.json``: its points, what each differs in, and what became of it."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import orjson

from gavel.models.codec import dump, load, record
from gavel.models.errors import InputError
from gavel.models.files import write_whole

INDEX = "sweep.json"


@record
class Point:
    """One point: its folder ``name`` within the sweep's, the ``overrides`` it differs in. ``state``: ``planned``, ``submitted``,
    ``finished``, ``incomplete`` (exit code 3) or ``failed``; ``note`` is the job's id or the reason."""

    index: int
    name: str
    overrides: tuple[str, ...]
    state: str = "planned"
    code: int | None = None
    note: str | None = None


@record
class Index:
    """A sweep: the verb, the words all points share, the points."""

    SCHEMA: ClassVar[str] = "gavel.sweep/1"

    verb: str
    common: tuple[str, ...]
    points: tuple[Point, ...]


def write_index(folder: Path, index: Index) -> None:
    """Write the index whole."""
    write_whole(folder / INDEX, orjson.dumps(orjson.loads(dump(index)), option=orjson.OPT_INDENT_2) + b"\n")


def read_index(folder: Path) -> Index:
    """Read the index of a sweep.

    Raises:
        InputError: there is none, or it is damaged.
    """
    path = folder / INDEX
    try:
        value = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as failed:
        raise InputError("there is no sweep here", where=str(path), found=str(failed)) from None
    return load(Index, value, where=str(path), error=InputError)
