"""The rubric of VERA-MH: a table of questions with answers and where each leads (SpringCare/VERA-MH
``data/rubric.tsv``, v1.2).

The file is tab separated; quotes in it are literal. A row with an id starts a question, a row without one adds an
answer to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gavel.models.codec import record
from gavel.models.errors import InputError, shorten_value

END, ASSIGN_END, NOT_RELEVANT_GOTO = "END", "ASSIGN_END", "NOT_RELEVANT>>"
SPECIAL_QUESTION = 'select "rate this dimension not relevant".'
"""A question with this text (trimmed, lower case) is answered without a judge."""

_COLUMNS = ("Question ID", "Dimension", "Severity", "Risk Type", "Question", "Examples", "Answer", "GOTO")
_LINE_END = re.compile(r"\r\n|\r|\n")
_NUMBER = re.compile(r"[+-]?\d+(?:\.0*)?")
_MISSING = frozenset((
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN",  # noqa: E501
    "None", "n/a", "nan", "null",
))  # fmt: skip
"""What upstream's reader (pandas ``read_csv``) takes for a missing cell."""


@record
class Option:
    """One answer and where it leads: ``END``, ``ASSIGN_END``, ``NOT_RELEVANT>>`` and a question's id, an id, or None
    (the next row).
    """

    text: str
    goto: str | None = None


@record
class Question:
    """One question. ``severity`` is None where the rubric gives none; ``implicit``: the rubric names no answers, so Yes
    (to the next dimension) and No (to the next row) are meant."""

    id: str
    dimension: str
    severity: str | None
    risk_type: str
    text: str
    examples: str
    options: tuple[Option, ...]
    implicit: bool

    @property
    def special(self) -> bool:
        """Whether it is answered by its only option, without a judge."""
        return self.text.strip().lower() == SPECIAL_QUESTION


@dataclass(frozen=True, slots=True)
class QuestionRubric:
    """Questions in file order, and the dimensions in order of first appearance."""

    questions: tuple[Question, ...]
    dimensions: tuple[str, ...]
    _places: Mapping[str, int] = field(repr=False, compare=False)

    @classmethod
    def from_tsv(cls, path: str | Path) -> QuestionRubric:
        """Read a rubric file (UTF-8; any line ends).

        Raises:
            InputError: it cannot be read, lacks a column or any question, or has two questions of one id.
        """
        try:
            text = Path(path).read_bytes().decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as failed:
            raise InputError("this rubric cannot be read", where=str(path), found=shorten_value(str(failed))) from None
        return cls.from_text(text, where=str(path))

    @classmethod
    def from_text(cls, text: str, *, where: str = "") -> QuestionRubric:
        """Read a rubric's text; see ``from_tsv``."""
        rows = list(_read_rows(text, where))
        questions = tuple(_read_questions(rows))
        if not questions:
            raise InputError("this rubric has no question", where=where)
        places: dict[str, int] = {}
        for place, question in enumerate(questions):
            if places.setdefault(question.id, place) != place:
                raise InputError("two questions have one id", where=where, field="Question ID", found=question.id)
        dimensions = dict.fromkeys(dimension for row in rows if (dimension := row["Dimension"]))
        return cls(questions, tuple(dimensions), places)

    def find_question(self, question_id: str) -> Question | None:
        """Return the question with this id."""
        place = self._places.get(question_id)
        return None if place is None else self.questions[place]

    def find_next(self, question_id: str, answer: str) -> tuple[str | None, str | None]:
        """Return the id of the question that follows ``answer``, and the answer's GOTO; None where there is none."""
        place = self._places.get(question_id)
        if place is None:
            return None, None
        question = self.questions[place]
        if question.implicit:
            return self._find_after_implicit(place, answer.lower()), None
        for option in question.options:
            if option.text.lower() == answer.lower():
                return self._find_target(place, option.goto), option.goto
        return None, None

    def _find_after_implicit(self, place: int, answer: str) -> str | None:
        if answer == "no":
            return self._find_row_after(place)
        if answer != "yes":
            return None
        left = self.questions[place].dimension
        later = (
            question for question in self.questions[place + 1 :] if question.dimension and question.dimension != left
        )
        return next((question.id for question in later), None)

    def _find_target(self, place: int, goto: str | None) -> str | None:
        if goto is None:
            return self._find_row_after(place)
        if goto in (END, ASSIGN_END):
            return None
        return goto.removeprefix(NOT_RELEVANT_GOTO).strip()

    def _find_row_after(self, place: int) -> str | None:
        return self.questions[place + 1].id if place + 1 < len(self.questions) else None


def _read_rows(text: str, where: str) -> Iterator[Mapping[str, str]]:
    """Yield the rows as trimmed cells by column; missing cells are empty."""
    lines = [line for line in _LINE_END.split(text) if line]
    header = [name.strip() for name in lines[0].split("\t")] if lines else []
    if lacking := [name for name in _COLUMNS if name not in header]:
        raise InputError(
            "this rubric lacks a column",
            where=where,
            field=lacking[0],
            found=shorten_value(", ".join(header)),
            allowed=", ".join(_COLUMNS),
        )
    places = {name: header.index(name) for name in _COLUMNS}
    for line in lines[1:]:
        cells = line.split("\t")
        yield {name: _read_cell(cells[place]) if place < len(cells) else "" for name, place in places.items()}


def _read_cell(raw: str) -> str:
    return "" if raw in _MISSING else raw.strip()


def _read_number(cell: str) -> str:
    """Write a numeric id as an integer: a column of numbers with a gap is read as floats upstream."""
    return str(int(float(cell))) if _NUMBER.fullmatch(cell) else cell


def _read_questions(rows: list[Mapping[str, str]]) -> Iterator[Question]:
    head: Mapping[str, str] | None = None
    options: list[Option] = []
    for row in rows:
        if row["Question ID"]:
            if head is not None:
                yield _read_question(head, options)
            head, options = row, []
        if head is not None and row["Answer"]:
            options.append(Option(row["Answer"], _read_number(row["GOTO"]) or None))
    if head is not None:
        yield _read_question(head, options)


def _read_question(row: Mapping[str, str], options: list[Option]) -> Question:
    return Question(
        _read_number(row["Question ID"]),
        row["Dimension"],
        row["Severity"] or None,
        row["Risk Type"],
        row["Question"],
        row["Examples"],
        tuple(options) or (Option("Yes"), Option("No")),
        implicit=not options,
    )
