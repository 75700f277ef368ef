"""Readable tables of what a probe and a calibration found."""

from __future__ import annotations

from rich.table import Table

from gavel.judges.calibration.report import CalibrationReport, CascadeReport
from gavel.judges.calibration.statistics import Interval
from gavel.judges.probing.probe import ProbeReport
from gavel.models.failures import FailureKind


def make_checks_table(report: ProbeReport) -> Table:
    """Return the controls and attacks of a probe, one row each."""
    table = Table(title=f"binding {report.binding}: known answers and attacks")
    for column in ("check", "name", "expected", "got", ""):
        table.add_column(column, overflow="fold")
    for row in report.rows:
        table.add_row(
            row.kind, row.name, " or ".join(row.expected), row.got, "[green]pass[/]" if row.passed else "[red]FAIL[/]"
        )
    return table


def make_facts_table(report: ProbeReport) -> Table:
    """Return identity, overflow, determinism and throughput of a probe, and the verdict."""
    table = Table(title=f"binding {report.binding}: the judge", show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, text in _list_facts(report):
        table.add_row(name, text)
    verdict = (
        "[green]qualified[/]" if report.qualified else f"[red]not qualified[/]: {len(report.failed)} checks failed"
    )
    table.add_row("verdict", verdict)
    return table


def _list_facts(report: ProbeReport) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    if (identity := report.identity) is not None:
        said = "; ".join((*identity.problems, *identity.notes)) or ", ".join(identity.served_models)
        word = {True: "ok", False: "FAIL", None: "not checked"}[identity.passed]
        facts.append(("identity", f"{word}: {said}"))
    if (overflow := report.overflow) is not None:
        word = {
            True: "refused by name",
            False: f"FAIL: expected {FailureKind.CONTEXT_OVERFLOW} (refused, not cut), got {overflow.got}",
            None: overflow.got,
        }[overflow.passed]
        facts.append(("overlong prompt", word))
    if (determinism := report.determinism) is not None:
        facts.append(("flip rate", f"{determinism.flip_rate:.1%} of {determinism.calls} calls"))
    if (positions := report.positions) is not None:
        facts.append(("flips by place", f"{positions.rate:.1%} of {positions.pairs} pairs in both orders"))
    if (speed := report.throughput) is not None:
        tokens = f", {speed.tokens_per_s:,.0f} tokens/s" if speed.tokens_per_s is not None else ""
        facts.append(("throughput", f"{speed.calls_per_s:,.1f} calls/s{tokens} at concurrency {speed.concurrency}"))
    return facts


def make_confusion_table(report: CalibrationReport) -> Table:
    """Return the confusion matrix: a row per true label, a column per judged one."""
    table = Table(title=f"binding {report.binding}: labelled (rows) against judged (columns)")
    table.add_column("")
    for label in report.labels:
        table.add_column(label, justify="right")
    for label, counts in zip(report.labels, report.confusion, strict=True):
        table.add_row(label, *(str(count) for count in counts))
    return table


def make_agreement_table(report: CalibrationReport) -> Table:
    """Return the figures of agreement, overall and by slice."""
    table = Table(
        title=f"binding {report.binding}: agreement with {report.items} labelled answers", caption=report.caution
    )
    for column in ("", "items", "accuracy", "Cohen's kappa", "Krippendorff's alpha"):
        table.add_column(column)
    table.add_row(
        "all",
        str(report.accuracy.n),
        *(_format_figure(value) for value in (report.accuracy, report.kappa, report.alpha)),
    )
    for row in report.slices:
        table.add_row(
            f"{row.field} {row.value}", str(row.accuracy.n), _format_figure(row.accuracy), _format_figure(row.kappa), ""
        )
    counts = (("parsed", report.parses), ("ungraded", report.ungraded))
    for name, found in counts:
        if found:
            table.add_row(
                name,
                str(sum(found.values())),
                ", ".join(f"{key} {count}" for key, count in sorted(found.items())),
                "",
                "",
            )
    for name, share in (
        ("reviewed", report.reviewed_share),
        ("flip rate", report.flip_rate),
        ("swap rate", report.swap_rate),
    ):
        if share is not None:
            table.add_row(name, "", f"{share:.1%}", "", "")
    return table


def make_cascade_table(report: CascadeReport) -> Table:
    """Return what a cascade trusts, on one half of the items, and what that saves and costs on the other."""
    table = Table(
        title=f"cascade: chosen on {report.chosen_on} items, measured on {report.measured_on} others", show_header=False
    )
    for label, precision in report.precisions.items():
        said = "trusted" if label in report.trusted else "asks the second judge"
        table.add_row(f"precision of {label}", f"{_format_figure(precision)} of {precision.n} items: {said}")
    for name, figure in (
        ("second judge not asked", report.saved),
        ("agreement with it alone", report.agreement),
        ("accuracy", report.accuracy),
        ("accuracy of the second alone", report.second_accuracy),
    ):
        table.add_row(name, _format_figure(figure))
    return table


def _format_figure(value: Interval) -> str:
    if value.value is None:
        return "-"
    ends = (
        f" \\[{_format_number(value.low)}, {_format_number(value.high)}]"
        if value.low is not None and value.high is not None
        else ""
    )
    return f"{_format_number(value.value)}{ends}"


def _format_number(value: float) -> str:
    return f"{round(value, 3) + 0.0:.3f}"  # no minus before a zero
