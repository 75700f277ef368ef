"""The figures of instruction following, strict, by prompt and by instruction, and sliced. Ungraded rows are in no figure.

A prompt is followed if all its items passed. Figures by instruction are over single items; items that were skipped to save judge calls
are in none of them. Intervals are clustered by task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gavel.envs.instruction_following.findings import FOLLOWED
from gavel.envs.slices import slice_rows
from gavel.envs.statistics import consistent, encode, pass_at, share
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
class Item:
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
ITEM_SLICES: Mapping[str, Callable[[Item], str]] = {
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
    ``@category=punctuation``, ``@id=keywords:existence``, …), ``…/judged_share`` (items that took a judge), ``…/truncated_rate``; with
    several rollouts also pass@k and consistency of prompts. A row that failed at first and was graded later counts as graded.
    """
    graded = {(result.task_id, result.rollout_index): result for result in results if result.status == "graded"}
    others = {(result.task_id, result.rollout_index): result for result in results if result.status != "graded"}
    prompts = [_prompt(result) for result in graded.values()]
    items = [item for result in graded.values() for item in _items(result)]
    found = {**_prompt_figures(prompts), **_item_figures(items)}
    found |= {f"prompt_accuracy{suffix}": _prompt_accuracy(rows) for suffix, rows in slice_rows(prompts, graded.values()).items()}
    metrics = {f"{PREFIX}/{name}": metric for name, metric in found.items() if metric is not None}
    return Summary(metrics, _tables(graded.values(), [row for key, row in others.items() if key not in graded], items))


def _prompt_figures(rows: Sequence[Prompt]) -> Mapping[str, Metric | None]:
    found: dict[str, Metric | None] = {"prompt_accuracy": _prompt_accuracy(rows)}
    if not rows:
        return found
    clusters = encode(row.task_id for row in rows)
    followed = np.array([row.followed for row in rows])
    found["truncated_rate"] = share([row.truncated for row in rows], clusters)
    if (most := int(np.bincount(clusters).max())) > 1:
        found |= {f"pass@{k}": pass_at(k, followed, clusters) for k in sorted({*(2**i for i in range(most.bit_length())), most})}
        found["consistency"] = consistent(encode(row.followed for row in rows), clusters)
    return found | _sliced("prompt_accuracy", rows, PROMPT_SLICES, _prompt_accuracy)


def _item_figures(items: Sequence[Item]) -> Mapping[str, Metric | None]:
    found: dict[str, Metric | None] = {"instruction_accuracy": _item_accuracy(items)}
    if items:
        found["judged_share"] = share([item.judged for item in items], encode(item.task_id for item in items))
    return found | _sliced("instruction_accuracy", items, ITEM_SLICES, _item_accuracy)


def _prompt_accuracy(rows: Sequence[Prompt]) -> Metric | None:
    return share([row.followed for row in rows], encode(row.task_id for row in rows))


def _item_accuracy(items: Sequence[Item]) -> Metric | None:
    return share([item.passed for item in items], encode(item.task_id for item in items))


def _sliced(
    name: str, rows: Sequence[Any], slices: Mapping[str, Callable[[Any], str]], figure: Callable[[Sequence[Any]], Metric | None]
) -> dict[str, Metric | None]:
    found: dict[str, Metric | None] = {}
    for slice_name, value_of in slices.items():
        parts: dict[str, list[Any]] = {}
        for row in rows:
            parts.setdefault(value_of(row), []).append(row)
        found |= {f"{name}@{slice_name}={value}": figure(parts[value]) for value in sorted(parts)}
    return found


def _prompt(result: Result) -> Prompt:
    details = result.outcome.details or {}
    return Prompt(
        result.task_id, result.outcome.label == FOLLOWED, str(details.get("language", "")), len(result.outcome.checks),
        details.get("finish_reason") == "length",
    )  # fmt: skip


def _items(result: Result) -> Iterable[Item]:
    details = result.outcome.details or {}
    language = str(details.get("language", ""))
    for check, fact in zip(result.outcome.checks, details.get("items", ()), strict=True):
        if check.passed is not None:
            yield Item(
                result.task_id, check.passed, check.name, fact["kind"], bool(check.receipts), fact["category"], fact["source"],
                language, fact["swapped"],
            )  # fmt: skip


def _tables(graded: Iterable[Result], others: Sequence[Result], items: Sequence[Item]) -> Mapping[str, Any]:
    rows = list(graded)
    receipts = [receipt for row in rows for receipt in row.receipts if receipt.role == "judge"]
    reused = {"cache": sum(receipt.cache_hit for receipt in receipts), "dedupe": sum(receipt.shared for receipt in receipts)}
    saved = sum(int((row.outcome.details or {}).get("judge_calls_saved", 0)) for row in rows)
    return {
        "counts": {
            "graded": len(rows),
            "ungraded": _kinds(row for row in others if row.status == "judge_error"),
            "skipped": _kinds(row for row in others if row.status == "invalid_task"),
        },
        "items": _count(item.kind for item in items),
        "failed": _count(item.name if item.kind != "custom" else "llm_judge" for item in items if not item.passed),
        "judge_calls": {"made": len(receipts) - sum(reused.values()), **reused, "short_circuit": saved},
    }


def _kinds(results: Iterable[Result]) -> dict[str, int]:
    return _count(str(result.outcome.failure.kind) for result in results if result.outcome.failure)


def _count(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))
