"""The figures of abstention QA, overall and by domain. Ungraded rows are counted apart and never in a figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gavel.envs.slices import slice_rows
from gavel.envs.statistics import Codes, compute_consistency, compute_mean, compute_pass_at, compute_share, encode_names
from gavel.envs.types import Metric, Result, Summary
from gavel.models.codec import record

PREFIX = "abstention"
DEFAULT = "default"
"""How a verdict was read where the reply had none."""
PARSES = ("exact", "last_line", "substring", DEFAULT)
PERMISSIVE, STRICT = "nvidia/qa-abstention-v1", "gavel/qa-abstention-v1"
"""The profile that reads a verdict from any reply, and the one that does not."""
_NOT_STATED = {
    "substring": "the first of A, B, C that occurs anywhere in the reply was taken, be it a letter of a word",
    DEFAULT: "the reply holds none of these letters, which counts as incorrect",
}
Mask = npt.NDArray[np.bool_]


@record
class Row:
    """What the figures need of a graded result. ``call``: ``rule``, ``dedupe``, ``cache`` or ``made``."""

    task_id: str
    domain: str
    label: str
    abstention: str
    parse: str
    rule: str
    call: str


class Table:
    """Graded rows by column; masks are of shape (rows,)."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._columns = {
            field: np.array([getattr(row, field) for row in rows], dtype=np.str_)
            for field in ("label", "abstention", "parse", "call")
        }
        self.clusters: Codes = encode_names(row.task_id for row in rows)
        self.labels: Codes = encode_names(row.label for row in rows)

    def match_rows(self, field: str, *values: str) -> Mask:
        """Return which rows have one of ``values`` in ``field``."""
        return np.isin(self._columns[field], values)


Figure = Callable[[Table], Metric | None]


def _make_share(field: str, *values: str) -> Figure:
    return lambda table: compute_share(table.match_rows(field, *values), table.clusters)


def _make_share_of_judged(parse: str) -> Figure:
    return lambda table: compute_share(
        table.match_rows("parse", parse), table.clusters, of=~table.match_rows("parse", "")
    )


def _match_attempted(table: Table) -> Mask:
    """Return which rows hold an answer: to abstain is none, also where it is right."""
    return table.match_rows("label", "correct", "incorrect") & table.match_rows("abstention", "")


def _make_share_of_attempted(label: str) -> Figure:
    return lambda table: compute_share(table.match_rows("label", label), table.clusters, of=_match_attempted(table))


def _compute_index(table: Table) -> Metric | None:
    points = table.match_rows("label", "correct").astype(np.float64) - table.match_rows("label", "incorrect")
    return compute_mean(points, table.clusters, bounds=(-1.0, 1.0))


FIGURES: Mapping[str, Figure] = {
    "accuracy": _make_share("label", "correct"),
    "attempted_accuracy": _make_share_of_attempted("correct"),
    "abstention_rate": _make_share("abstention", "explicit", "judged"),
    "abstention_rate_explicit": _make_share("abstention", "explicit"),
    "abstention_rate_judged": _make_share("abstention", "judged"),
    "hallucination_rate": _make_share_of_attempted("incorrect"),
    "omniscience_index": _compute_index,
    "truncated_rate": _make_share("label", "truncated"),
    "no_answer_rate": _make_share("label", "no_answer"),
    **{f"parse_{parse}": _make_share_of_judged(parse) for parse in PARSES},
    "judge_calls_saved_by_rules": _make_share("call", "rule"),
    "judge_calls_saved_by_dedupe": _make_share("call", "dedupe"),
    "judge_calls_saved_by_cache": _make_share("call", "cache"),
}
"""Every figure by name. Attempted accuracy and hallucination rate are over correct and incorrect rows that hold an
answer, the shares of parse paths over judged rows, the others over all graded rows."""


def summarize(results: Sequence[Result]) -> Summary:
    """Return all figures (``abstention/accuracy``, by domain ``abstention/accuracy@law``) and the counts behind them.

    Fields of one's own (``source.slice_fields``) give slices such as ``abstention/accuracy@level=hard``. A figure
    without rows is left out. With several rollouts: pass@k for powers of two and for the most rollouts that a task has
    (``abstention/pass@4``), and ``abstention/consistency``. A row that failed at first and was graded later counts as
    graded.
    """
    graded = {(result.task_id, result.rollout_index): result for result in results if result.status == "graded"}
    failed = {(result.task_id, result.rollout_index): result for result in results if result.status != "graded"}
    rows = [_make_row(result) for result in graded.values()]
    metrics = dict(_compute_figures(rows, ""))
    for suffix, of in slice_rows(rows, graded.values()).items():
        metrics |= _compute_figures(of, suffix)
    domains: dict[str, list[Row]] = {}
    for row in rows:
        domains.setdefault(row.domain, []).append(row)
    for domain in sorted(domains):
        metrics |= _compute_figures(domains[domain], f"@{domain}")
    tables = {
        "counts": {
            "graded": len(graded),
            "ungraded": _count_ungraded([result for key, result in failed.items() if key not in graded]),
        },
        "labels": {
            "all": _count_values(rows, "label"),
            **{domain: _count_values(of, "label") for domain, of in sorted(domains.items())},
        },
        "rules": _count_values(rows, "rule"),
        "parse": _count_values(rows, "parse"),
        "judge_calls": _count_values(rows, "call"),
    }
    return Summary(metrics, tables)


def remarks(results: Sequence[Result]) -> tuple[str, ...]:
    """Say how many verdicts a rubric that reads any reply took from replies that state none; nothing where all were
    stated.
    """
    judged = [
        result.outcome
        for result in results
        if result.status == "graded" and (result.outcome.details or {}).get("parse")
    ]
    said = []
    for parse, what in _NOT_STATED.items():
        found = [outcome for outcome in judged if (outcome.details or {})["parse"] == parse]
        if found:
            right = sum(outcome.label == "correct" for outcome in found)
            said.append(
                f"{len(found)} of {len(judged)} verdicts were not given by the judge as it was asked to: {what} "
                f"({parse}); "
                f"{right} of them ({right / len(found):.0%}) count as correct. This is how profile {PERMISSIVE} reads; "
                f"rubrics.abstention.profile={STRICT} leaves such rows ungraded"
            )
    return tuple(said)


def _compute_figures(rows: Sequence[Row], suffix: str) -> Mapping[str, Metric]:
    if not rows:
        return {}
    table = Table(rows)
    found = {name: figure(table) for name, figure in FIGURES.items()}
    most = int(np.bincount(table.clusters).max())
    if most > 1:
        passed = table.match_rows("label", "correct")
        found |= {f"pass@{k}": compute_pass_at(k, passed, table.clusters) for k in _list_powers(most)}
        found["consistency"] = compute_consistency(table.labels, table.clusters)
    return {f"{PREFIX}/{name}{suffix}": metric for name, metric in found.items() if metric is not None}


def _list_powers(most: int) -> list[int]:
    return sorted({*(2**i for i in range(most.bit_length())), most})


def _make_row(result: Result) -> Row:
    details = result.outcome.details or {}
    return Row(
        task_id=result.task_id,
        domain=str(result.metadata.get("domain", "other")),
        label=result.outcome.label,
        abstention=str(details.get("abstention", "")),
        parse=str(details.get("parse", "")),
        rule=str(details.get("rule", "")),
        call=_classify_call(result, details),
    )


def _classify_call(result: Result, details: Mapping[str, Any]) -> str:
    """Tell what the row's verdict cost: its last judge receipt is the one that gave it."""
    judge = [receipt for receipt in result.receipts if receipt.role == "judge"]
    if "rule" in details or not judge:
        return "rule"
    return "cache" if judge[-1].cache_hit else "dedupe" if judge[-1].shared else "made"


def _count_values(rows: Sequence[Row], field: str) -> dict[str, int]:
    """Count the values of a field; rows without a value are left out."""
    return dict(sorted(Counter(value for row in rows if (value := getattr(row, field))).items()))


def _count_ungraded(results: Sequence[Result]) -> dict[str, int]:
    return dict(
        sorted(Counter(str(result.outcome.failure.kind) for result in results if result.outcome.failure).items())
    )
