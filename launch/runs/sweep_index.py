"""The index of a sweep, ``sweep.json``: its points, what each differs in, and what became of it.

The same command goes on with a sweep. One that names more values extends it: a point is what all its words together
say, so that it keeps its folder whichever of them are swept, and a value that is swept only now does not make it
another.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import orjson

from gavel.launch.runs.training_plan import PLAN
from gavel.models.codec import dump, load, record
from gavel.models.errors import InputError
from gavel.models.files import write_whole

INDEX = "sweep.json"


@record
class SweepPoint:
    """One point: its folder ``name`` within the sweep's, the ``overrides`` it differs in. ``state``: ``planned``,
    ``submitted``, ``finished``, ``incomplete`` (exit code 3) or ``failed``; ``note`` is the job's id or the reason."""

    index: int
    name: str
    overrides: tuple[str, ...]
    state: str = "planned"
    code: int | None = None
    note: str | None = None


@record
class SweepIndex:
    """A sweep: the verb, the words all points share, the points."""

    SCHEMA: ClassVar[str] = "gavel.sweep/1"

    verb: str
    common: tuple[str, ...]
    points: tuple[SweepPoint, ...]


def write_index(folder: Path, index: SweepIndex) -> None:
    """Write the index whole."""
    write_whole(folder / INDEX, orjson.dumps(orjson.loads(dump(index)), option=orjson.OPT_INDENT_2) + b"\n")


def read_index(folder: Path) -> SweepIndex:
    """Read the index of a sweep.

    Raises:
        InputError: there is none, or it is damaged.
    """
    path = folder / INDEX
    try:
        value = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as failed:
        raise InputError("there is no sweep here", where=str(path), found=str(failed)) from None
    return load(SweepIndex, value, where=str(path), error=InputError)


def is_begun(folder: Path, point: SweepPoint) -> bool:
    """Whether anything of a point is there that another sweep in its folder would orphan."""
    return any((folder / point.name / name).is_file() for name in (PLAN, "manifest.json"))


def merge_index(folder: Path, wanted: SweepIndex, name: Callable[[int, tuple[str, ...]], str]) -> SweepIndex:
    """Return a sweep as its folder goes on with it: known points as they are there, new ones behind them under ``name``
    (of their number and words). Points that never began are left out where they are not wanted any more, so that a typo
    locks nothing.

    Raises:
        InputError: the folder holds something else, or a sweep with a point that began and is not wanted.
    """
    if not (folder / INDEX).exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise InputError("this folder is not empty and no sweep", where=str(folder), remedy="name another folder")
        return wanted
    known = read_index(folder)
    kept = {_list_words(known, point): point for point in known.points if is_begun(folder, point)}
    points = {_list_words(wanted, point): point for point in wanted.points}
    missing = [point for words, point in kept.items() if words not in points]
    if known.verb != wanted.verb or missing:
        raise InputError(
            "this folder holds another sweep",
            where=str(folder),
            found=_describe_missing(known, missing),
            remedy="name another folder; to extend a sweep, give its own command more values (seed=1,2 and then "
            "seed=1,2,3)",
        )
    number = max((point.index for point in kept.values()), default=-1)
    merged = [replace(kept[words], overrides=point.overrides) for words, point in points.items() if words in kept]
    for words, point in points.items():
        if words not in kept:
            number += 1
            merged.append(SweepPoint(number, name(number, point.overrides), point.overrides))
    return replace(wanted, points=tuple(sorted(merged, key=lambda point: point.index)))


def _list_words(index: SweepIndex, point: SweepPoint) -> frozenset[str]:
    return frozenset((*index.common, *point.overrides))


def _describe_missing(known: SweepIndex, missing: list[SweepPoint]) -> str:
    words = shlex.join((*known.common, *missing[0].overrides)) if missing else ""
    more = f" and {len(missing) - 1} more" if missing[1:] else ""
    return f"gavel {known.verb} -m … {words}{more}"
