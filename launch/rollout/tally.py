"""What a run came to: ``metrics.json``, ``reward_profile.jsonl`` and the closing table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar

import numpy as np
import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gavel.envs import statistics
from gavel.envs.panel_metrics import summarize_panels
from gavel.envs.remarks import ReplyCounts, describe_filtered
from gavel.envs.types import Environment, Exporter, Metric, Remarks, Rereads, Result, RewardPolicy, Summary, Transcript
from gavel.launch.runs.accounting import WHOLE_RUN, Accounts, ServiceAccount, describe_money
from gavel.launch.runs.folder import RunFolder, list_last_attempts
from gavel.launch.runs.inputs import PlannedRow
from gavel.launch.runs.journal import RowKey
from gavel.models.codec import dump, record
from gavel.models.failures import FailureKind
from gavel.models.service import Price, get_display_name
from gavel.models.types import Receipt


@record
class RunMetrics:
    """``metrics.json``: counts of rows, the mean reward, the environment's metrics and tables, the cost by service.

    ``rows``: ``planned``, ``graded``, ``ungraded``, ``invalid`` (skipped tasks), ``missing`` (planned, no attempt
    stored). ``services`` is what the calls cost by service, ``cost`` over all of them. ``ungraded`` and ``skipped``
    count by kind of failure. Intervals are clustered by what the environment says (``EnvironmentInfo.clusters``), as a
    rule by task. Ungraded rows are in no figure.
    """

    SCHEMA: ClassVar[str] = "gavel.metrics/1"

    rows: Mapping[str, int]
    ungraded: Mapping[str, int]
    labels: Mapping[str, int]
    reward: Metric | None
    metrics: Mapping[str, Metric]
    tables: Mapping[str, Any]
    services: Mapping[str, ServiceAccount]
    skipped: Mapping[str, int] = field(default_factory=dict)
    cost: ServiceAccount | None = None


@record
class TaskProfile:
    """``reward_profile.jsonl``: one task over its rollouts; ``mean`` and ``std`` (population) are None without a graded
    row.
    """

    SCHEMA: ClassVar[str] = "gavel.reward_profile/1"

    task_id: str
    task_digest: str
    graded: int
    ungraded: int
    rewards: tuple[float, ...]
    mean: float | None
    std: float | None
    labels: Mapping[str, int]


def drop_transcript(result: Result) -> Result:
    """Return the result without its transcript, which no metric reads, so that a long run fits in memory."""
    return replace(result, transcript=Transcript())


class RunTally:
    """Collects the rows of a run, stored before and stored now, and writes what they come to; ``environment`` may
    reread each, and ``prices`` are those of the services by name."""

    def __init__(
        self,
        planned: Sequence[PlannedRow],
        environment: Environment | None = None,
        prices: Mapping[str, Price] | None = None,
    ) -> None:
        self._planned, self._prices = planned, prices
        self._reread = environment.reread if isinstance(environment, Rereads) else None
        self._graded: dict[RowKey, Result] = {}
        self._failed: list[Result] = []
        self._replies = ReplyCounts()

    def add_row(self, result: Result) -> None:
        """Take one stored row."""
        key = (result.task_id, result.rollout_index)
        if result.status == "graded":
            self._replies.add(result)
            self._graded[key] = drop_transcript(self._reread(result) if self._reread is not None else result)
        else:
            self._failed.append(drop_transcript(result))

    def _make_accounts(self) -> Accounts:
        """Count each call once: a later attempt's row lists the calls of those before it again, in whatever order rows
        were read.
        """
        accounts, seen = Accounts(self._prices), dict[RowKey, set[Receipt]]()
        for result in self._failed:
            counted = seen.setdefault((result.task_id, result.rollout_index), set())
            accounts.add_receipts(receipt for receipt in result.receipts if receipt not in counted)
            counted.update(result.receipts)
        for key, result in self._graded.items():
            again = seen.get(key, ())
            accounts.add_receipts(receipt for receipt in result.receipts if receipt not in again)
        return accounts

    def list_owed_errors(self) -> dict[RowKey, list[Result]]:
        """Return the failed attempts of each row."""
        rows: dict[RowKey, list[Result]] = {}
        for result in self._failed:
            if result.task_digest:  # else a task that could not be read, and so was never planned
                rows.setdefault((result.task_id, result.rollout_index), []).append(result)
        return rows

    def count_missing(self, rows: Sequence[PlannedRow]) -> dict[str, int]:
        """Count rows of ``rows`` that have no grade (``ungraded``: an attempt failed, ``missing``: none was made) and
        skipped tasks.
        """
        failed = {(row.task_id, row.rollout_index) for row in self.list_ungraded()}
        left = [row.key for row in rows if row.key not in self._graded]
        counts = {"ungraded": sum(key in failed for key in left), "missing": sum(key not in failed for key in left)}
        return {name: count for name, count in (*counts.items(), ("invalid", len(self.invalid))) if count}

    @property
    def graded(self) -> Mapping[RowKey, Result]:
        """The graded rows."""
        return self._graded

    @property
    def invalid(self) -> frozenset[str]:
        """The ids of skipped tasks, without those that were mended since."""
        return frozenset(self._list_skipped())

    def list_reasons(self) -> list[str]:
        """Return one line for each kind of failure: the first reason of its kind, and how often it occurred."""
        found: dict[str, list[str]] = {}
        for row in (*self.list_ungraded(), *self._list_skipped().values()):
            if row.outcome.failure is not None:
                found.setdefault(str(row.outcome.failure.kind), []).append(row.outcome.failure.reason)
        return [f"{kind} ({len(texts)}), the first: {texts[0]}" for kind, texts in sorted(found.items())]

    def list_advice(self) -> list[str]:
        """Return what a user may change where calls failed though they were made again."""
        failed = sum(
            row.outcome.failure is not None and row.outcome.failure.kind in _CALLED_AGAIN
            for row in self.list_ungraded()
        )
        if not failed:
            return []
        return [
            f"{failed} rows failed at calls that were made again: `rpm` and `tpm` of a service keep within its "
            f"quota, `attempts` and "
            "`deadline` say how long one call is tried (judge.rpm=…, policy.deadline=…)"
        ]

    def list_remarks(self, environment: Environment) -> tuple[str, ...]:
        """Return what there is to say of the rows besides figures, one line each: of the policy's replies, and by the
        environment.
        """
        own = tuple(environment.remarks(self._list_in_order())) if isinstance(environment, Remarks) else ()
        return (*self._replies.describe(), *describe_filtered(self.list_ungraded()), *own)

    def _list_skipped(self) -> dict[str, Result]:
        good = {row.task.task_id for row in self._planned}
        return {row.task_id: row for row in self._failed if not row.task_digest and row.task_id not in good}

    def list_ungraded(self) -> list[Result]:
        """Return the newest failed attempt of each row that has no grade."""
        return [
            row for key, row in list_last_attempts(self._failed).items() if key not in self._graded and row.task_digest
        ]

    def compute_metrics(self, environment: Environment, reward: RewardPolicy) -> RunMetrics:
        """Return the metrics over every row of the run."""
        graded, ungraded = self._list_in_order(), self.list_ungraded()
        summary: Summary = environment.summarize([*graded, *ungraded])
        rewards = [row.reward.value for row in graded if row.reward is not None]
        clusters = statistics.encode_names(statistics.find_cluster(row, environment.info.clusters) for row in graded)
        known, accounts = len(graded) + len(ungraded), self._make_accounts()
        return RunMetrics(
            rows={
                "planned": len(self._planned),
                "graded": len(graded),
                "ungraded": len(ungraded),
                "invalid": len(self.invalid),
                "missing": len(self._planned) - known,
            },
            ungraded=_count_names(str(row.outcome.failure.kind) for row in ungraded if row.outcome.failure),
            labels=_count_names(row.outcome.label for row in graded),
            reward=statistics.compute_mean(rewards, clusters, bounds=reward.bounds) if rewards else None,
            metrics={**summary.metrics, **summarize_panels([*graded, *ungraded])},
            tables=summary.tables,
            services=accounts.close_accounts(),
            skipped=_count_names(
                str(row.outcome.failure.kind) for row in self._list_skipped().values() if row.outcome.failure
            ),
            cost=accounts.compute_total(),
        )

    def _list_in_order(self) -> list[Result]:
        return [self._graded[row.key] for row in self._planned if row.key in self._graded]

    def make_profiles(self) -> Iterable[TaskProfile]:
        """Yield each planned task's profile, in the tasks' order."""
        failed = Counter(row.task_id for row in self.list_ungraded())
        rows: dict[str, list[Result]] = {row.task.task_id: [] for row in self._planned}
        for result in self._list_in_order():
            rows[result.task_id].append(result)
        digests = {row.task.task_id: row.task_digest for row in self._planned}
        for task_id, results in rows.items():
            rewards = tuple(row.reward.value for row in results if row.reward is not None)
            yield TaskProfile(
                task_id=task_id,
                task_digest=digests[task_id],
                graded=len(results),
                ungraded=failed[task_id],
                rewards=rewards,
                mean=float(np.mean(rewards)) if rewards else None,
                std=float(np.std(rewards)) if rewards else None,
                labels=_count_names(row.outcome.label for row in results),
            )

    def write_metrics(self, folder: RunFolder, environment: Environment, reward: RewardPolicy) -> RunMetrics:
        """Write ``metrics.json``, ``reward_profile.jsonl`` and what the environment exports; return the metrics."""
        metrics = self.compute_metrics(environment, reward)
        folder.write_file("metrics.json", orjson.dumps(orjson.loads(dump(metrics)), option=orjson.OPT_INDENT_2))
        folder.write_file("reward_profile.jsonl", b"".join(dump(profile) + b"\n" for profile in self.make_profiles()))
        if isinstance(environment, Exporter):
            for name, data in environment.exports(self._list_in_order(), folder.path.name, len(self._planned)).items():
                folder.write_file(name, data)
        return metrics


def _count_names(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


_CALLED_AGAIN = frozenset((
    FailureKind.PROVIDER_UNAVAILABLE, FailureKind.TRANSPORT_TIMEOUT, FailureKind.TRANSPORT_PEER_DROP, FailureKind.TRANSPORT_UNREACHABLE,  # noqa: E501
))  # fmt: skip

SHOWN = 9
"""Figures that fit a screen; the others are in ``metrics.json``."""


CALLS = "calls"
CALLS_OF_CHILD = "calls (all but the judge's are calls of the parent, and were not made again)"


def make_closing_table(
    metrics: RunMetrics, seconds: float | None, calls: str = CALLS, clusters: str | None = None
) -> RenderableType:
    """Return the table that ends a run: rows, reward, the first metrics with intervals, failures, cost.

    ``seconds`` is how long it took; None where nothing was to be done. ``calls`` says whose the calls are, ``clusters``
    what intervals are clustered by (None: by task).
    """
    figures = Table(
        title=f"figures (95 % intervals, clustered by {clusters or 'task'})", title_justify="left", show_edge=False
    )
    for column, justify in (
        ("metric", "left"),
        ("value", "right"),
        ("low", "right"),
        ("high", "right"),
        ("n", "right"),
    ):
        figures.add_column(column, justify=justify)  # type: ignore[arg-type]
    if metrics.reward is not None:
        figures.add_row("reward", *_format_cells(metrics.reward), style="bold")
    overall = [(name, metric) for name, metric in metrics.metrics.items() if "@" not in name]
    for name, metric in overall[:SHOWN]:
        figures.add_row(Text(name), *_format_cells(metric))
    if len(metrics.metrics) > SHOWN:
        figures.caption = f"and {len(metrics.metrics) - SHOWN} more, by slice too, in metrics.json"
    rows = ", ".join(
        f"{count} {name}" for name, count in metrics.rows.items() if count or name in ("planned", "graded")
    )
    labels = ", ".join(f"{name} {count}" for name, count in metrics.labels.items())
    took = f" in {seconds:.1f} s" if seconds is not None else "; nothing was to be done"
    lines: list[RenderableType] = [Text(f"rows: {rows}{took}"), Text(f"labels: {labels or 'none'}")]
    if metrics.ungraded:
        failures = ", ".join(f"{kind} {count}" for kind, count in metrics.ungraded.items())
        lines.append(Text(f"ungraded, in no figure: {failures}", style="bold"))
    if metrics.labels:
        lines.append(figures)
    money = describe_money(metrics.services, metrics.cost)
    return Group(*lines, _make_cost_table(metrics, calls), *([Text(f"money: {money}")] if money else []))


def _format_cells(metric: Metric) -> tuple[str, str, str, str]:
    low, high = ("-" if bound is None else f"{bound:.3f}" for bound in (metric.low, metric.high))
    return f"{metric.value:.3f}", low, high, str(metric.n)


def _make_cost_table(metrics: RunMetrics, calls: str) -> Table:
    table = Table(title=calls, title_justify="left", show_edge=False)
    for column in (
        "service",
        "calls",
        "cached",
        "shared",
        "tokens in",
        "tokens out",
        "p50 s",
        "p90 s",
        "p99 s",
        "failed attempts",
    ):
        table.add_column(column, justify="left" if column in ("service", "failed attempts") else "right")
    for name, cost in metrics.services.items():
        table.add_row(get_display_name(name), *_format_cost(cost))
    if metrics.cost is not None and len(metrics.services) > 1:
        table.add_row(WHOLE_RUN, *_format_cost(metrics.cost), style="bold")
    return table


def _format_cost(cost: ServiceAccount) -> tuple[str, ...]:
    retries = ", ".join(f"{kind} {count}" for kind, count in sorted(cost.retries.items())) or "0"
    latency = (f"{cost.latency_s[rank]:.2f}" if rank in cost.latency_s else "-" for rank in ("p50", "p90", "p99"))
    saved = (_format_share(cost.cache_hits, cost.cache_share), _format_share(cost.shared, cost.dedupe_share))
    return (str(cost.calls), *saved, str(cost.prompt_tokens), str(cost.completion_tokens), *latency, retries)


def _format_share(count: int, share: float) -> str:
    return f"{count} ({share:.0%})" if count else "0"


__all__ = ["RunMetrics", "RunTally", "TaskProfile", "drop_transcript", "make_closing_table"]
