"""The figures of instruction following, strict, by prompt and by instruction, and sliced. Ungraded rows are in no
figure.

A prompt is followed if all its items passed. Figures by instruction are over single items; items that were skipped to
save judge calls are in none of them. Intervals are clustered by task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gavel.envs.instruction_following.findings import FOLLOWED
from gavel.envs.slices import slice_rows
from gavel.envs.statistics import compute_consistency, compute_pass_at, compute_share, encode_names
from gavel.envs.types import Metric, Result, Summary
from gavel.models.codec import record

PREFIX = "instruction_following"


@record
class Prompt:
    """One graded row."""

    task_id: str
    followed: bool
    language: str
    items: int
    truncated: bool


@record
class ItemRow:
    """One item of a graded row that has a verdict; ``judged``: a judge gave it, which none does for an empty reply."""

    task_id: str
    passed: bool
    name: str
    kind: str
    judged: bool
    category: str
    source: str
    language: str
    swapped: bool


PROMPT_SLICES: Mapping[str, Callable[[Prompt], str]] = {
    "language": lambda row: row.language,
    "instructions": lambda row: str(row.items),
}
ITEM_SLICES: Mapping[str, Callable[[ItemRow], str]] = {
    "language": lambda item: item.language,
    "category": lambda item: item.category,
    "source": lambda item: item.source,
    "kind": lambda item: item.kind,
    "misalignment": lambda item: str(item.swapped).lower(),
    "id": lambda item: "llm_judge" if item.kind == "custom" else item.name,
}
"""What figures are sliced by; a slice's name is ``<figure>@<slice>=<value>``."""


def summarize(results: Sequence[Result]) -> Summary:
    """Return all figures and the counts behind them.

    ``instruction_following/prompt_accuracy`` and ``…/instruction_accuracy`` with their slices (``@language=de``,
    ``@category=punctuation``, ``@id=keywords:existence``, …), ``…/judged_share`` (items that took a judge),
    ``…/truncated_rate``; with several rollouts also pass@k and consistency of prompts. A row that failed at first and
    was graded later counts as graded.
    """
    graded = {(result.task_id, result.rollout_index): result for result in results if result.status == "graded"}
    others = {(result.task_id, result.rollout_index): result for result in results if result.status != "graded"}
    prompts = [_make_prompt(result) for result in graded.values()]
    items = [item for result in graded.values() for item in _make_items(result)]
    found = {**_compute_prompt_figures(prompts), **_compute_item_figures(items)}
    found |= {
        f"prompt_accuracy{suffix}": _compute_prompt_accuracy(rows)
        for suffix, rows in slice_rows(prompts, graded.values()).items()
    }
    metrics = {f"{PREFIX}/{name}": metric for name, metric in found.items() if metric is not None}
    return Summary(
        metrics, _make_tables(graded.values(), [row for key, row in others.items() if key not in graded], items)
    )


def _compute_prompt_figures(rows: Sequence[Prompt]) -> Mapping[str, Metric | None]:
    found: dict[str, Metric | None] = {"prompt_accuracy": _compute_prompt_accuracy(rows)}
    if not rows:
        return found
    clusters = encode_names(row.task_id for row in rows)
    followed = np.array([row.followed for row in rows])
    found["truncated_rate"] = compute_share([row.truncated for row in rows], clusters)
    if (most := int(np.bincount(clusters).max())) > 1:
        found |= {
            f"pass@{k}": compute_pass_at(k, followed, clusters)
            for k in sorted({*(2**i for i in range(most.bit_length())), most})
        }
        found["consistency"] = compute_consistency(encode_names(row.followed for row in rows), clusters)
    return found | _compute_slices("prompt_accuracy", rows, PROMPT_SLICES, _compute_prompt_accuracy)


def _compute_item_figures(items: Sequence[ItemRow]) -> Mapping[str, Metric | None]:
    found: dict[str, Metric | None] = {"instruction_accuracy": _compute_item_accuracy(items)}
    if items:
        found["judged_share"] = compute_share(
            [item.judged for item in items], encode_names(item.task_id for item in items)
        )
    return found | _compute_slices("instruction_accuracy", items, ITEM_SLICES, _compute_item_accuracy)


def _compute_prompt_accuracy(rows: Sequence[Prompt]) -> Metric | None:
    return compute_share([row.followed for row in rows], encode_names(row.task_id for row in rows))


def _compute_item_accuracy(items: Sequence[ItemRow]) -> Metric | None:
    return compute_share([item.passed for item in items], encode_names(item.task_id for item in items))


def _compute_slices(
    name: str,
    rows: Sequence[Any],
    slices: Mapping[str, Callable[[Any], str]],
    figure: Callable[[Sequence[Any]], Metric | None],
) -> dict[str, Metric | None]:
    found: dict[str, Metric | None] = {}
    for slice_name, value_of in slices.items():
        parts: dict[str, list[Any]] = {}
        for row in rows:
            parts.setdefault(value_of(row), []).append(row)
        found |= {f"{name}@{slice_name}={value}": figure(parts[value]) for value in sorted(parts)}
    return found


def _make_prompt(result: Result) -> Prompt:
    details = result.outcome.details or {}
    return Prompt(
        result.task_id,
        result.outcome.label == FOLLOWED,
        str(details.get("language", "")),
        len(result.outcome.checks),
        details.get("finish_reason") == "length",
    )


def _make_items(result: Result) -> Iterable[ItemRow]:
    details = result.outcome.details or {}
    language = str(details.get("language", ""))
    for check, fact in zip(result.outcome.checks, details.get("items", ()), strict=True):
        if check.passed is not None:
            yield ItemRow(
                result.task_id,
                check.passed,
                check.name,
                fact["kind"],
                bool(check.receipts),
                fact["category"],
                fact["source"],
                language,
                fact["swapped"],
            )


def _make_tables(graded: Iterable[Result], others: Sequence[Result], items: Sequence[ItemRow]) -> Mapping[str, Any]:
    rows = list(graded)
    receipts = [receipt for row in rows for receipt in row.receipts if receipt.role == "judge"]
    reused = {
        "cache": sum(receipt.cache_hit for receipt in receipts),
        "dedupe": sum(receipt.shared for receipt in receipts),
    }
    saved = sum(int((row.outcome.details or {}).get("judge_calls_saved", 0)) for row in rows)
    return {
        "counts": {
            "graded": len(rows),
            "ungraded": _count_kinds(row for row in others if row.status == "judge_error"),
            "skipped": _count_kinds(row for row in others if row.status == "invalid_task"),
        },
        "items": _count_names(item.kind for item in items),
        "failed": _count_names(
            item.name if item.kind != "custom" else "llm_judge" for item in items if not item.passed
        ),
        "judge_calls": {"made": len(receipts) - sum(reused.values()), **reused, "short_circuit": saved},
    }


def _count_kinds(results: Iterable[Result]) -> dict[str, int]:
    return _count_names(str(result.outcome.failure.kind) for result in results if result.outcome.failure)


def _count_names(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))
