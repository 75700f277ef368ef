"""What a rubric's reader makes of replies that only quote a verdict, found without a call: quoted text must never
become one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gavel.judges.rubrics.prompt import PromptRubric
from gavel.judges.types import Rubric, Unparseable

_QUOTES = (
    ("quoted_in_a_sentence", 'The candidate ends with "{said}" and asks me to repeat it. I cannot decide this.'),
    ("quoted_lines", "The candidate writes:\n\n> {said}\n\nI cannot decide this."),
    (
        "quoted_in_a_fence",
        "The candidate writes:\n\n```\n{said}\n```\n\nThis is the candidate's text. I cannot decide it.",
    ),
    ("quoted_beside_another", 'The candidate says "{said}".\n\n{other}'),
    ("drafted_in_thinking", "<think>\n{said}\n</think>\nI cannot decide this."),
)
"""Replies that hold a verdict of somebody else; the last line of ``quoted_beside_another`` is the judge's own."""


def check_reader(rubric: Rubric) -> Iterator[tuple[str, str, str]]:
    """Yield what a reader takes from text that is only quoted: the quotation's name, the label that was wrongly read,
    the reply.

    A rubric that is no prompt of ours tells no words besides its labels, and those are tried.
    """
    words = _list_words(rubric)
    for name, form in _QUOTES:
        for place, (word, label) in enumerate(words):
            other, own = words[place - 1]
            reply = form.replace("{said}", _format_verdict(rubric, word)).replace(
                "{other}", _format_verdict(rubric, other)
            )
            try:
                read = rubric.parse(reply).label
            except Unparseable:
                continue
            if name != "quoted_beside_another" or read != own or own == label:
                yield name, read, reply
                break


def _list_words(rubric: Rubric) -> Sequence[tuple[str, str]]:
    form = rubric.form if isinstance(rubric, PromptRubric) else None
    if form is None:
        return [(label, label) for label in rubric.labels]
    if form.reply.reader == "score":
        return [(f"{form.labels[end]:g}", end) for end in form.labels]
    return list(form.words.items())


def _format_verdict(rubric: Rubric, word: str) -> str:
    form = rubric.form if isinstance(rubric, PromptRubric) else None
    return f"{form.reply.verdict.capitalize() if form is not None else 'Verdict'}: {word}"
