"""What a source is: a format of other people's files, adapted row by row to our tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import orjson

from gavel.envs.types import Task, TaskError
from gavel.models.codec import record
from gavel.models.errors import shorten_value


@record
class Licence:
    """The publisher's licence statements, as they are; ``warning`` says what they leave open, empty if nothing."""

    statements: Mapping[str, str]
    warning: str = ""


class SourceAdapter(Protocol):
    """One format. It adapts rows of one environment."""

    name: str
    env: str
    binding: str  # what judges its tasks unless another is named
    licence: Licence
    skips_bad_rows: bool  # preparing leaves bad rows out and lists them; else one bad row refuses the whole file

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a row is meant to be of this format, even if it is a bad one."""
        ...

    def adapt(self, row: Mapping[str, Any], binding: str) -> Task:
        """Return the row's task with its target parsed; a row without an id gets an empty ``task_id``.

        Raises:
            TaskError: names the field; the caller adds file and line.
        """
        ...


@runtime_checkable
class TellsItsDataSet(Protocol):
    """What an adapter may have besides, where its ``licence`` is that of one published data set whose form other rows
    may have.
    """

    def published(self, dataset: str | None, task_ids: Iterable[str]) -> bool:
        """Tell whether any of these rows seem to be the data set's: by its name where they were downloaded, else by
        their ids.
        """
        ...


def find_licence(adapter: SourceAdapter, dataset: str | None, task_ids: Iterable[str]) -> Licence:
    """Return the statements that hold for these rows; none where they are somebody's own in the form of a published
    data set.
    """
    if isinstance(adapter, TellsItsDataSet) and not adapter.published(dataset, task_ids):
        return Licence({})
    return adapter.licence


SLICES = "slices"
"""Where a task's metadata holds the fields by which figures are sliced, by name."""


class Sliced:
    """An adapter that also keeps fields of the row, by which figures are sliced."""

    def __init__(self, adapter: SourceAdapter, fields: Sequence[str]) -> None:
        self.name, self.env, self.binding, self.licence = adapter.name, adapter.env, adapter.binding, adapter.licence
        self.skips_bad_rows = adapter.skips_bad_rows
        self._adapter, self._fields = adapter, tuple(fields)

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """Tell what the adapter tells."""
        return self._adapter.recognises(row)

    def adapt(self, row: Mapping[str, Any], binding: str) -> Task:
        """Return the adapter's task with ``metadata.slices``; a field that the row lacks is ``(none)``.

        Raises:
            TaskError: as the adapter's; a field holds no single value.
        """
        task = self._adapter.adapt(row, binding)
        found = {field: slice_value(row, field) or NOT_SAID for field in self._fields}
        return replace(task, metadata={**task.metadata, SLICES: found}) if found else task


NOT_SAID = "(none)"


def read_text_field(row: Mapping[str, Any], field: str, *, prefix: str = "") -> str:
    """Return the text in ``row[field]``, which may not be blank.

    Raises:
        TaskError: the field is missing, not a text, or blank.
    """
    path = f"{prefix}{field}"
    if field not in row:
        raise TaskError(
            "this field is missing",
            field=path,
            found=f"the fields {', '.join(sorted(row)) or '(none)'}",
            allowed="a text",
        )
    value = row[field]
    if not isinstance(value, str):
        raise TaskError(
            "this field has the wrong type",
            field=path,
            found=f"{type(value).__name__}: {shorten_value(value)}",
            allowed="a text",
        )
    if not value.strip():
        raise TaskError(
            "this text is blank", field=path, found=repr(value), allowed="a text with at least one visible character"
        )
    return value


def slice_value(row: Mapping[str, Any], field: str) -> str:
    """Return a field by which figures are sliced as text; empty where the row has none or a blank one.

    Raises:
        TaskError: it is no single value.
    """
    value = row.get(field)
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise TaskError(
            "figures cannot be sliced by this",
            field=field,
            found=f"{type(value).__name__}: {shorten_value(value)}",
            allowed="a text or a number",
            remedy="write one value, or rename the field",
        )
    return str(value).strip()


def read_json_cell(value: Any) -> Any:
    """Return what a table's cell holds, where a row of JSON would hold an object or a list; any other value as it
    is.
    """
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def read_optional_id(row: Mapping[str, Any], field: str = "id") -> str:
    """Return the row's id as text, empty if it has none.

    Raises:
        TaskError: the id is neither a text nor an integer, or is blank.
    """
    value = row.get(field)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TaskError(
            "this field has the wrong type", field=field, found=shorten_value(value), allowed="a text or an integer"
        )
    if not str(value).strip():
        raise TaskError(
            "this id is blank", field=field, found=repr(value), allowed="a text or an integer, or no id at all"
        )
    return str(value)
