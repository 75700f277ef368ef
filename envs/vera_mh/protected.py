"""Personas kept for the test: read from the files that hold them, so that no training task is made of one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gavel.envs.hygiene import compute_file_sha256
from gavel.envs.rows import check_file, read_rows, read_text_lines
from gavel.models.codec import record
from gavel.models.errors import InputError, find_nearest


@record
class ProtectedPersonas:
    """A file as it goes into the manifest: how many personas it protects."""

    path: str
    sha256: str
    personas: int


def read_protected(
    paths: Sequence[str], known: Collection[str]
) -> tuple[frozenset[str], tuple[ProtectedPersonas, ...]]:
    """Return the personas that are protected, and each file with its digest.

    Args:
        paths: ``tasks.jsonl`` of a test (rows with ``target.persona``), or ``.txt`` with one name a line.
        known: the names in the persona table.

    Raises:
        InputError: a file cannot be read, a row names no persona, or one that is not in the table; a set read in part
            protects in part.
    """
    names: set[str] = set()
    files = []
    for text in paths:
        path = Path(text)
        check_file(path)
        found = set(_read_checked(path, known))
        if not found:
            raise InputError("this file names no persona", where=text, field="source.protected", allowed="at least one")
        names |= found
        files.append(ProtectedPersonas(text, compute_file_sha256(path), len(found)))
    return frozenset(names), tuple(files)


def _read_checked(path: Path, known: Collection[str]) -> Iterator[str]:
    for number, name in read_text_lines(path) if path.suffix == ".txt" else _read_rows(path):
        if name not in known:
            near = find_nearest(name, known)
            raise InputError(
                "there is no such persona",
                where=f"{path}:{number}",
                field="source.protected",
                found=name,
                allowed=f"one of {len(known)}, such as {', '.join(list(known)[:3])}",
                remedy=f"did you mean {near[0]}?" if near else "",
            )
        yield name


def _read_rows(path: Path) -> Iterator[tuple[int, str]]:
    for line in read_rows(path):
        if line.error is not None:
            raise line.error
        yield line.number, _read_persona(line.row, f"{path}:{line.number}")


def _read_persona(row: Mapping[str, Any], where: str) -> str:
    target = row.get("target")
    name = target.get("persona") if isinstance(target, Mapping) else None
    if not isinstance(name, str):
        raise InputError(
            "this row names no persona",
            where=where,
            field="target.persona",
            found=f"the fields {', '.join(sorted(row))}",
            allowed="a task of VERA-MH",
            remedy="give the tasks.jsonl of your test, or a .txt file with one persona a line",
        )
    return name
