"""Rows of a file, one by one with their line numbers: JSON Lines, tables in text, and Parquet where pyarrow is
installed.
"""

from __future__ import annotations

import codecs
import importlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from gavel.envs.tables import DELIMITERS, Line, read_table_rows
from gavel.envs.types import TaskError
from gavel.models.errors import InputError, find_nearest, shorten_value
from gavel.models.install import install_hint
from gavel.models.texts.json_keys import find_repeated_key

_PEEK = 4096
_OTHER_ENCODINGS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"PAR1")
"""How files of gzip, zip, zstd, xz, bzip2 and Parquet begin."""


def read_rows(path: Path) -> Iterator[Line]:
    """Yield the rows of a ``.parquet``, ``.csv`` or ``.tsv`` file, or of a text file with one JSON object per line.

    Blank lines are skipped; a byte order mark and CRLF are tolerated. A line that is not a JSON object is yielded with
    its error.

    Raises:
        InputError: the file does not exist, cannot be read, is not such a file, or is empty.
    """
    check_file(path)
    found = False
    try:
        for line in _READERS.get(path.suffix.lower(), _read_json_lines)(path):
            found = True
            yield line
    except OSError as failed:
        raise InputError("this file cannot be read", where=str(path), found=failed.strerror or str(failed)) from None
    if not found:
        raise InputError(
            "this file is empty", where=str(path), allowed=_TABLE if _is_table(path) else "one JSON object per line"
        )


def read_text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file that are not blank, without the spaces around them, by number.

    Raises:
        InputError: it is not UTF-8.
    """
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as failed:
        raise InputError(
            "this file is not UTF-8", where=str(path), found=f"byte {failed.start}", allowed="UTF-8"
        ) from None
    yield from ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip())


def check_file(path: Path) -> None:
    """Refuse what is not a file.

    Raises:
        InputError: names similar files nearby, or the files of the directory that was given.
    """
    if path.is_dir():
        files = sorted(
            file.name for pattern in ("*.jsonl", "*.csv", "*.tsv", "*.parquet") for file in path.glob(pattern)
        )
        raise InputError(
            "this is a directory, not a file",
            where=str(path),
            remedy=f"give one of its files: {', '.join(files[:5])}" if files else "give a .jsonl file",
        )
    if not path.exists():
        folder = path.parent
        around = [file.name for file in folder.iterdir()] if folder.is_dir() else []
        near = find_nearest(path.name, around)
        missing = "" if folder.is_dir() else f"its folder {folder} does not exist either"
        raise InputError(
            "there is no such file",
            where=str(path),
            found=missing,
            remedy=f"did you mean {' or '.join(str(folder / name) for name in near)}?" if near else "check the path",
        )


def _read_json_lines(path: Path) -> Iterator[Line]:
    with path.open("rb") as file:
        start = file.read(_PEEK)
        _check_text(path, start)
        file.seek(len(codecs.BOM_UTF8) if start.startswith(codecs.BOM_UTF8) else 0)
        for number, text in enumerate(file, start=1):
            if text.strip():
                yield _read_line(text, number, f"{path}:{number}")


def _read_table(path: Path) -> Iterator[Line]:
    with path.open("rb") as file:
        _check_text(path, file.read(_PEEK))
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
        yield from read_table_rows(text, DELIMITERS[path.suffix.lower()], str(path))


def _is_table(path: Path) -> bool:
    return path.suffix.lower() in DELIMITERS


def _check_text(path: Path, start: bytes) -> None:
    if start.startswith(_OTHER_ENCODINGS):
        raise InputError(
            "this file is UTF-16", where=str(path), allowed="UTF-8", remedy="convert it: iconv -f UTF-16 -t UTF-8"
        )
    if _is_table(path):
        if start.startswith(_PACKED) or b"\0" in start:
            raise InputError("this is a binary file", where=str(path), allowed=_TABLE)
        return
    if _is_binary(start):
        remedy = (
            "rename it to end in .parquet"
            if start.startswith(b"PAR1")
            else "give a .jsonl file (unpack it if it is compressed)"
        )
        raise InputError(
            "this is a binary file", where=str(path), allowed="one JSON object per line, UTF-8", remedy=remedy
        )
    if start.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"["):
        raise InputError(
            "this file is one JSON array",
            where=str(path),
            allowed="one JSON object per line",
            remedy="convert it: jq -c '.[]'",
        )


def _is_binary(start: bytes) -> bool:
    """Tell a file that is no text from one with a spoilt line; that line is a bad row."""
    head = start.removeprefix(codecs.BOM_UTF8).lstrip()
    return head.startswith(_PACKED) or (not head.startswith((b"{", b"[")) and b"\0" in head.partition(b"\n")[0])


def _read_line(text: bytes, number: int, where: str) -> Line:
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError as failed:
        shown = shorten_value(text.decode(errors="replace").strip())
        return Line(
            number,
            {},
            TaskError(f"this line is not JSON: {failed}", where=where, found=shown, allowed="one JSON object"),
        )
    if (key := find_repeated_key(text, row)) is not None:
        return Line(
            number,
            {},
            TaskError(
                "this key stands twice in one object", where=where, field=key, allowed="each once", remedy="keep one"
            ),
        )
    if not isinstance(row, dict):
        return Line(
            number,
            {},
            TaskError(
                "this line is not a JSON object", where=where, found=shorten_value(row), allowed="one JSON object"
            ),
        )
    return Line(number, row)


def _read_parquet(path: Path) -> Iterator[Line]:
    parquet = import_optional("pyarrow.parquet", "a Parquet file")
    try:
        batches = parquet.ParquetFile(path).iter_batches(batch_size=1024)
        rows = (row for batch in batches for row in batch.to_pylist())
        for number, row in enumerate(rows, start=1):
            yield Line(number, _drop_nulls(row))
    except importlib.import_module("pyarrow").ArrowException as failed:
        raise InputError(
            "this is not a Parquet file that can be read", where=str(path), found=shorten_value(str(failed))
        ) from None


def _drop_nulls(value: Any) -> Any:
    """Drop the nulls by which Parquet's one schema for all rows shows a key that a row did not have."""
    if isinstance(value, dict):
        return {key: _drop_nulls(item) for key, item in value.items() if item is not None}
    return [_drop_nulls(item) for item in value] if isinstance(value, list) else value


_READERS: Mapping[str, Callable[[Path], Iterator[Line]]] = {
    ".parquet": _read_parquet,
    **dict.fromkeys(DELIMITERS, _read_table),
}
_TABLE = "a header line with the columns' names and a line for each row"


def import_optional(module: str, purpose: str) -> Any:
    """Import a module of the extra ``data``.

    Raises:
        InputError: it is not installed; says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        name = module.partition(".")[0]
        raise InputError(f"{purpose} needs {name}, which is not installed", remedy=install_hint("data")) from None
