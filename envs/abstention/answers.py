"""The accepted answers of a source's row: ``answer``, one or a list, ``aliases`` beside it, or none where
``answerable`` is false.
"""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gavel.envs.abstention.target import SEVERAL, Target, make_target
from gavel.envs.sources import read_text_field
from gavel.envs.types import TaskError
from gavel.models.errors import shorten_value

MORE = ("aliases", "answer_aliases", "answers", "accepted_answers", "golden_answers")
"""Fields with further accepted answers, as data sets call them."""
_ALLOWED = "a text, a number, or a list of them"
_LISTED = 100_000
"""Characters of a text that is looked at as a list."""
_SPOKEN = {"true": True, "false": False}


def read_target(row: Mapping[str, Any]) -> Target:
    """Return what a row's reply is graded against.

    Raises:
        TaskError: names the field and says how several answers, and none, are written.
    """
    question = read_text_field(row, "question")
    if "answer" not in row and not any(name in row for name in MORE) and _is_answerable(row):
        raise TaskError(
            "this field is missing",
            field="answer",
            found=f"the fields {', '.join(sorted(map(str, row))) or '(none)'}",
            allowed=_ALLOWED,
            remedy=SEVERAL,
        )
    found = tuple(_iter_answers(row))
    if found and not _is_answerable(row):
        raise TaskError(
            "this question has an answer and is said to have none",
            field="answerable",
            found=f"false, and {shorten_value(found[0])}",
            allowed="either",
            remedy="remove the answers where no answer is right, else remove `answerable`",
        )
    if not found and _is_answerable(row):
        raise _make_error("this question has no answer", "answer", row.get("answer"))
    return make_target(question, found)


def is_written_list(text: str) -> bool:
    """Tell whether a text is a list of texts that was written out, as JSON or as Python prints it."""
    return _read_written_list(text) is not None


def _iter_answers(row: Mapping[str, Any]) -> Iterator[str]:
    if "answer" in row and not (row["answer"] in (None, "", []) and not _is_answerable(row)):
        yield from _read_field(row["answer"], "answer")
    for name in MORE:
        if row.get(name) not in (None, "", []):
            yield from _read_field(row[name], name)


def _read_field(value: Any, field: str) -> Iterator[str]:
    listed = _read_written_list(value) if isinstance(value, str) else value
    if not isinstance(listed, list):
        yield _to_text(value, field)
        return
    if not listed:
        raise _make_error("this list of answers is empty", field, value)
    for place, item in enumerate(listed):
        yield _to_text(item, f"{field}.{place}")


def _to_text(value: Any, field: str) -> str:
    """Return an answer as text: numbers and truth values as JSON writes them."""
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value).lower() if isinstance(value, bool | int) else orjson.dumps(value).decode()
    if not isinstance(value, str):
        raise _make_error("this is no answer", field, value)
    if not value.strip():
        raise _make_error("this answer is blank", field, value)
    return value


def _make_error(problem: str, field: str, value: Any) -> TaskError:
    return TaskError(
        problem, field=field, found=f"{type(value).__name__}: {shorten_value(value)}", allowed=_ALLOWED, remedy=SEVERAL
    )


def _is_answerable(row: Mapping[str, Any]) -> bool:
    value = row.get("answerable", True)
    spoken = _SPOKEN.get(value.strip().lower()) if isinstance(value, str) else value
    if spoken is None and value is None:
        return True
    if not isinstance(spoken, bool):
        raise TaskError(
            "this is neither true nor false",
            field="answerable",
            found=shorten_value(value),
            allowed="true or false",
            remedy=SEVERAL,
        )
    return spoken


def _read_written_list(text: str) -> list[str] | None:
    """Read ``["a", "b"]`` and ``['a', 'b']``.

    A list of anything but texts stays a text: ``[1, 2]`` may be what a program prints.
    """
    bare = text.strip()
    if len(bare) > _LISTED or not (bare.startswith("[") and bare.endswith("]") and bare[1:].lstrip()[:1] in ("'", '"')):
        return None
    found = _parse_json(bare) or _parse_printed(bare)
    return found if isinstance(found, list) and all(isinstance(item, str) for item in found) else None


def _parse_json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _parse_printed(text: str) -> Any:
    """Read what Python printed; nothing else that Python can read (``['a' 'b']`` is how numpy prints two, and reads as
    one).
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes that no printed text has
            found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return found if repr(found) == text else None
