"""Labelled answers: a JSONL file whose rows hold a rubric's slots, the right label, and who labelled and reviewed
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from gavel.judges.form_types import ABSENT
from gavel.judges.references import write_references
from gavel.judges.rubrics.prompt import PromptRubric
from gavel.judges.types import Rubric
from gavel.models.codec import compute_digest, record
from gavel.models.errors import InputError, shorten_value
from gavel.models.texts.json_keys import find_repeated_key

SLICES = ("domain", "kind", "source", "language")
"""Fields of a row by which the report is split, where they are given."""


class LabelledError(InputError):
    """A labelled file that cannot be used: names file, line and field."""


@record
class LabelledItem:
    """One labelled answer; ``cluster`` names what it shares with others (its question), ``slices`` the groups it is
    reported in.
    """

    slots: Mapping[str, str]
    label: str
    cluster: str
    slices: Mapping[str, str]
    labelled_by: str | None = None
    reviewed_by: str | None = None


@record
class LabelledSet:
    """The items of one file and the digest of its bytes."""

    items: tuple[LabelledItem, ...]
    digest: str

    @property
    def reviewed_share(self) -> float:
        """Share of items that somebody reviewed."""
        return sum(bool(item.reviewed_by) for item in self.items) / len(self.items)


def read_labelled(path: Path, rubric: Rubric) -> LabelledSet:
    """Read a labelled file for a rubric.

    Each row has the rubric's slots as texts, ``label`` (one of the rubric's), and may have ``labelled_by``,
    ``reviewed_by``,
    ``cluster`` (default: its first slot) and the fields of ``SLICES``. As in a task, ``references`` (any is right) or
    ``answerable: false`` may stand for ``reference``: the judge is given what it would be given in a run.

    Raises:
        LabelledError: the file is missing or empty, a line is not an object, or a field is missing, mistyped or out of
            its set.
    """
    try:
        data = path.read_bytes()
    except OSError as failed:
        raise LabelledError("the labelled file cannot be read", where=str(path), found=failed.strerror or "") from None
    lines = [(number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip()]
    if not lines:
        raise LabelledError("the labelled file is empty", where=str(path))
    return LabelledSet(
        tuple(_read_item(line, rubric, f"{path}:{number}") for number, line in lines), compute_digest(data)
    )


def _read_item(line: bytes, rubric: Rubric, where: str) -> LabelledItem:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as failed:
        raise LabelledError("this line is not JSON", where=where, found=str(failed)) from None
    if (key := find_repeated_key(line, row)) is not None:
        raise LabelledError("this key stands twice in one object", where=where, field=key, remedy="keep one")
    if not isinstance(row, dict):
        raise LabelledError("this line is not an object", where=where, found=shorten_value(row))
    absent = rubric.form.optional if isinstance(rubric, PromptRubric) and rubric.form is not None else frozenset()
    empty = {name for name in absent if row.get(name) is None and not {"references", "answerable"} & row.keys()}
    slots = {name: ABSENT if name in empty else _read_slot(row, name, rubric.profile, where) for name in rubric.slots}
    label = _read_text(row, "label", where)
    if label not in rubric.labels:
        raise LabelledError(
            "this is not a label of the rubric",
            where=where,
            field="label",
            found=label,
            allowed=", ".join(rubric.labels),
        )
    return LabelledItem(
        slots,
        label,
        cluster=str(row.get("cluster") or slots[rubric.slots[0]]),
        slices={name: row[name] for name in SLICES if isinstance(row.get(name), str)},
        labelled_by=_read_optional(row, "labelled_by", where),
        reviewed_by=_read_optional(row, "reviewed_by", where),
    )


def _read_slot(row: Mapping[str, Any], name: str, profile: str, where: str) -> str:
    given = [field for field in ("reference", "references", "answerable") if field in row]
    if name != "reference" or given in ([], ["reference"]):
        return _read_text(row, name, where)
    if len(given) > 1:
        raise LabelledError(
            "these fields say the same thing twice", where=where, field=", ".join(given), remedy="keep one of them"
        )
    if given == ["answerable"]:
        if row["answerable"] is not False:
            raise LabelledError(
                "an answer is missing", where=where, field="reference", allowed="a text, or answerable: false"
            )
        return write_references(profile, ())
    several = row["references"]
    if not (isinstance(several, list) and several and all(isinstance(one, str) and one.strip() for one in several)):
        raise LabelledError(
            "these are no answers",
            where=where,
            field="references",
            found=shorten_value(several),
            allowed="a list of texts, one or more",
        )
    return write_references(profile, tuple(dict.fromkeys(several)))


def _read_text(row: Mapping[str, Any], field: str, where: str) -> str:
    if field not in row:
        raise LabelledError("this field is missing", where=where, field=field)
    if not isinstance(row[field], str):
        raise LabelledError("this value is not a text", where=where, field=field, found=shorten_value(row[field]))
    return str(row[field])


def _read_optional(row: Mapping[str, Any], field: str, where: str) -> str | None:
    return None if row.get(field) is None else _read_text(row, field, where)
