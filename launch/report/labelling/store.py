"""What annotators said, a line as soon as it is said: a label, a skip, or that the last one is taken back.

Each annotator has a file, ``labels/BINDING/people/NAME.jsonl``; a kill loses nothing that was pressed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import orjson

from gavel.models.closing import Closing
from gavel.models.codec import dump, load, record
from gavel.models.errors import ConfigError, InputError
from gavel.models.files import JsonLines

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
PEOPLE = "people"
SKIPPED = ""
"""Stands for the label of a question that was skipped."""


@record
class LabelEvent:
    """One thing an annotator did: ``label`` None takes back what was said to ``key`` before, ``""`` skips it; ``time``
    in Unix seconds.
    """

    SCHEMA: ClassVar[str] = "gavel.label/1"

    key: str
    label: str | None
    time: float
    note: str = ""


class LabelStore(Closing):
    """The labels of one annotator.

    Args:
        folder: of the binding's labels.
        annotator: who labels: letters, digits, ``.``, ``_`` and ``-``.

    Raises:
        ConfigError: this is no name.
        InputError: a line is damaged.
        PersistenceError: the file cannot be written.
    """

    def __init__(self, folder: Path, annotator: str) -> None:
        check_name(annotator)
        path = folder / PEOPLE / f"{annotator}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = JsonLines(path)
        self.said = read_labels(path)

    def add(self, key: str, label: str | None, note: str = "") -> LabelEvent:
        """Keep what was said; it is on the file system's side on return."""
        event = LabelEvent(key, label, time.time(), note)
        self._file.append(dump(event))
        _take_event(self.said, event)
        return event

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        self._file.close()


def check_name(annotator: str | None) -> None:
    """Refuse what cannot name an annotator and a file.

    Raises:
        ConfigError: it is no name.
    """
    if annotator is None or not NAME.fullmatch(annotator):
        raise ConfigError(
            "who labels must have a name",
            field="annotator",
            found=str(annotator),
            allowed="letters, digits, . _ and -, up to 64",
            remedy="annotator=NAME",
        )


def read_labels(path: Path) -> dict[str, LabelEvent]:
    """Return the newest label or skip of each question, in the order in which they were said.

    Raises:
        InputError: a line is damaged; a torn last line is passed over.
    """
    said: dict[str, LabelEvent] = {}
    if not path.is_file():
        return said
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            break
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as failed:
            raise InputError("this label is damaged", where=f"{path}:{number}", found=str(failed)) from None
        _take_event(said, load(LabelEvent, value, where=f"{path}:{number}", error=InputError))
    return said


def _take_event(said: dict[str, LabelEvent], event: LabelEvent) -> None:
    said.pop(event.key, None)
    if event.label is not None:
        said[event.key] = event


def read_annotators(folder: Path) -> Mapping[str, Mapping[str, LabelEvent]]:
    """Return what each annotator of a binding said, by name.

    Raises:
        InputError: a line is damaged.
    """
    return {
        path.stem: read_labels(path) for path in sorted((folder / PEOPLE).glob("*.jsonl")) if NAME.fullmatch(path.stem)
    }
