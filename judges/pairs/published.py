"""Stored verdicts on pairs as two benchmarks publish them, read again from the judges' own texts.

JudgeBench (arXiv:2410.12784) asks for ``[[A>>B]]`` … ``[[B>>A]]`` and scores a pair by the sum over both orders. LLMBar
(arXiv:2310.07641) asks for ``Output (a)``, alone or in a last sentence, and counts each order, both, and agreement.
These readers accept what those benchmarks accept, no more and no less; rubrics of one's own are read by
``gavel.judges.rubrics.verdict``, which a quoted verdict cannot fool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gavel.judges.calibration.statistics import compute_kappa, count_confusion
from gavel.judges.pairs.rules import FIRST, SECOND, TIE, PairRule, PairVerdict, combine_orders, turn_verdict
from gavel.models.codec import record
from gavel.models.errors import InputError, shorten_value

_MARK = re.compile(r"\[\[([AB<>=]+)\]\]")
_MARKS: Mapping[str, PairVerdict] = {"A>B": FIRST, "B>A": SECOND, "A=B": TIE}
_ALONE: tuple[tuple[PairVerdict, re.Pattern[str]], ...] = (
    (FIRST, re.compile(r"(?:^|\n) ?Output \(a\)")),
    (SECOND, re.compile(r"(?:^|\n) ?Output \(b\)")),
)
_SENTENCE: tuple[tuple[PairVerdict, re.Pattern[str]], ...] = (
    (FIRST, re.compile(r"Output \(a\) is better.")),
    (SECOND, re.compile(r"Output \(b\) is better.")),
)
_CATEGORIES = {
    "mmlu-pro": "knowledge",
    "livebench-reasoning": "reasoning",
    "livebench-math": "math",
    "livecodebench": "coding",
}
_LLMBAR_ORDERS = ("swap = False", "swap = True")
_LLMBAR_WINNERS: Mapping[str, PairVerdict] = {"1": FIRST, "2": SECOND}


@record
class StoredPair:
    """One pair of a benchmark as a judge saw it.

    Attributes:
        pair_id: the benchmark's name of it, or its number.
        category: the part of the benchmark it belongs to.
        label: the better reply.
        texts: what the judge wrote in each order; None where no text is stored (a reward model, two ratings).
        stored: each order's verdict as the benchmark keeps it, of the places that the replies stood in; None: none
            could be read.
    """

    pair_id: str
    category: str
    label: PairVerdict
    texts: tuple[str | None, str | None]
    stored: tuple[PairVerdict | None, PairVerdict | None]


@record
class PairCount:
    """How a judge did on pairs, by one rule: ``right`` of ``pairs``, ``both_right`` and ``both_wrong`` in both orders,
    ``flips`` whose two orders name different replies, ``with_tie`` in which an order names none; ``unread`` verdicts of
    the two orders count as naming none.
    """

    pairs: int
    right: int
    both_right: int
    both_wrong: int
    flips: int
    with_tie: int
    unread: int

    @property
    def share(self) -> float:
        """The share of pairs that are right."""
        return self.right / self.pairs


def read_marked_verdict(text: str) -> PairVerdict | None:
    """Read ``[[A>B]]``, ``[[A>>B]]``, ``[[A=B]]``, …: every mark of the text must be the same; None otherwise."""
    marks = set(_MARK.findall(text))
    return _MARKS.get(marks.pop().replace(">>", ">")) if len(marks) == 1 else None


def read_output_verdict(text: str, *, sentence: bool) -> PairVerdict | None:
    """Read ``Output (a)`` at a line's beginning, or as a ``sentence`` that says it is better; (a) is looked for first,
    as LLMBar does.
    """
    patterns = _SENTENCE if sentence else _ALONE
    return next((verdict for verdict, pattern in patterns if pattern.search(text)), None)


def read_judgebench(lines: Iterable[str]) -> tuple[StoredPair, ...]:
    """Read a file of JudgeBench's ``outputs`` that holds both orders.

    Raises:
        InputError: a line is not of its form; says which.
    """
    return tuple(_read_judgebench_pair(line, number) for number, line in enumerate(lines, 1) if line.strip())


def _read_judgebench_pair(line: str, number: int) -> StoredPair:
    try:
        row = json.loads(line)
        judged = [judgment or {"judgment": {"response": ""}, "decision": None} for judgment in row["judgments"]]
        texts = [judgment["judgment"]["response"] for judgment in judged]
        marked = ["scores" not in judgment["judgment"] for judgment in judged]
        stored = [_MARKS.get(judgment["decision"]) for judgment in judged]
        shown, swapped = ((text if mark else None) for text, mark in zip(texts, marked, strict=True))
        category = next(name for start, name in _CATEGORIES.items() if row["source"].startswith(start))
        return StoredPair(row["pair_id"], category, _MARKS[row["label"]], (shown, swapped), (stored[0], stored[1]))
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as failed:
        raise _make_form_error("JudgeBench", f"line {number}", failed) from None


def count_pairs(
    pairs: Sequence[StoredPair], rule: PairRule = "sum", *, from_texts: bool = True
) -> Mapping[str, PairCount]:
    """Count a judge's pairs by category, and all of them as ``overall``.

    Args:
        pairs: as ``read_judgebench`` returns them.
        rule: ``sum`` is JudgeBench's own.
        from_texts: read the verdicts from the judge's texts where there are any; False: take the stored ones.
    """
    categories = dict.fromkeys(pair.category for pair in pairs)
    parts = {name: [pair for pair in pairs if pair.category == name] for name in categories} | {"overall": list(pairs)}
    return {name: _count_part(part, rule, from_texts=from_texts) for name, part in parts.items()}


def list_verdicts(pair: StoredPair, *, from_texts: bool = True) -> tuple[PairVerdict | None, PairVerdict | None]:
    """Return the verdicts of both orders, read from JudgeBench's texts where ``from_texts`` and where there are any."""
    shown, swapped = (
        read_marked_verdict(text) if from_texts and text is not None else stored
        for text, stored in zip(pair.texts, pair.stored, strict=True)
    )
    return shown, swapped


def _count_part(pairs: Sequence[StoredPair], rule: PairRule, *, from_texts: bool) -> PairCount:
    verdicts = [list_verdicts(pair, from_texts=from_texts) for pair in pairs]
    grades = [combine_orders(shown or TIE, swapped or TIE, rule) for shown, swapped in verdicts]
    judged = list(zip(pairs, grades, strict=True))
    return PairCount(
        len(pairs),
        sum(grade.winner == pair.label for pair, grade in judged),
        sum(grade.orders == (pair.label, pair.label) for pair, grade in judged),
        sum(grade.orders == (turn_verdict(pair.label),) * 2 for pair, grade in judged),
        sum(grade.position_flip for grade in grades),
        sum(TIE in grade.orders for grade in grades),
        sum(verdict is None for pair in verdicts for verdict in pair),
    )


@record
class LlmbarRow:
    """One instance of LLMBar as a judge saw it.

    Attributes:
        label: the better reply.
        texts: what the judge wrote in each order; None where no text is stored (two ratings).
        winners: the stored verdict of each order, of the replies themselves; None: none could be read.
        sentence: the judge was asked for a last sentence with its verdict, not for the verdict alone.
    """

    label: PairVerdict
    texts: tuple[str | None, str | None]
    winners: tuple[PairVerdict | None, PairVerdict | None]
    sentence: bool


def read_llmbar(text: str, evaluator: str) -> tuple[LlmbarRow, ...]:
    """Read a judge's ``result.json``.

    Args:
        text: the file.
        evaluator: whose it is, by its folder: ``GPT-4/CoT``.

    Raises:
        InputError: it is not of its form.
    """
    try:
        return tuple(_read_llmbar_row(row, evaluator) for row in json.loads(text))
    except (ValueError, KeyError, TypeError, IndexError) as failed:
        raise _make_form_error("LLMBar", f"result.json of {evaluator}", failed) from None


def _read_llmbar_row(row: Mapping[str, Any], evaluator: str) -> LlmbarRow:
    stages = row["results"]
    orders = [stages[-1][name] for name in _LLMBAR_ORDERS]
    texts = [order["completion"][0] if "completion" in order else None for order in orders]
    winners = [None if order["winner"] is None else _LLMBAR_WINNERS[order["winner"]] for order in orders]
    label = _LLMBAR_WINNERS[str(row["label"])]
    sentence = _is_sentence_asked(evaluator, len(stages))
    return LlmbarRow(label, (texts[0], texts[1]), (winners[0], winners[1]), sentence)


def _is_sentence_asked(evaluator: str, stages: int) -> bool:
    """Tell what a judge of LLMBar was asked for, by its configuration there; where two orders differ, "Swap" asks once
    more, for the verdict alone.
    """
    model, _, kind = evaluator.partition("/")
    if kind == "Swap":
        return stages == 1
    return kind == "Swap_CoT" or (kind == "CoT" and model != "PaLM2")


def read_llmbar_verdicts(row: LlmbarRow) -> tuple[PairVerdict | None, PairVerdict | None]:
    """Return both orders' verdicts of the replies themselves, read from the texts; the stored ones where no text is."""
    shown, swapped = (
        stored if text is None else read_output_verdict(text, sentence=row.sentence)
        for text, stored in zip(row.texts, row.winners, strict=True)
    )
    return shown, turn_verdict(swapped) if row.texts[1] is not None and swapped is not None else swapped


def compute_llmbar_statistics(
    labels: Sequence[PairVerdict], verdicts: Sequence[tuple[PairVerdict | None, PairVerdict | None]]
) -> dict[str, str | float]:
    """Return what LLMBar's ``statistics.json`` holds, in its own words and number formats.

    Its kappas code a verdict for the second reply as none (its own evaluator does), so they are no measure of
    agreement; they are computed alike to be compared. NaN where chance alone would always agree.
    """
    n = len(labels)
    right = [sum(pair[place] == label for label, pair in zip(labels, verdicts, strict=True)) for place in (0, 1)]
    both = sum(pair == (label, label) for label, pair in zip(labels, verdicts, strict=True))
    equal = sum(shown == swapped for shown, swapped in verdicts)
    truth = [1 if label == FIRST else 2 for label in labels]
    coded = [[int(pair[place] == FIRST) for pair in verdicts] for place in (0, 1)]
    kappas = [float(compute_kappa(count_confusion(truth, codes, 3))) for codes in coded]
    counts = {"correct_False": right[0], "correct_True": right[1], "correct_both": both, "equal": equal}
    shares: dict[str, str | float] = {name: f"{count} / {n} = {count / n * 100}%" for name, count in counts.items()}
    return shares | {
        "correct_average": f"{sum(right) / 2 / n * 100}%",
        "kappa_False": kappas[0],
        "kappa_True": kappas[1],
        "kappa_average": sum(kappas) / 2,
        "kappa_agreement": float(compute_kappa(count_confusion(coded[0], coded[1], 2))),
    }


def _make_form_error(name: str, where: str, failed: Exception) -> InputError:
    return InputError(
        f"this is no stored result of {name}", where=where, found=shorten_value(f"{type(failed).__name__}: {failed}")
    )
