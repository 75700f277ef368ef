"""``gavel probe``: known answers and attacks on each binding, a table each, the report in the run folder, a certificate."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from gavel.envs.slot_texts import form_of
from gavel.judges.attacks import attacks_on
from gavel.judges.bindings import Binding, output_limit
from gavel.judges.certificate import known_fingerprint
from gavel.judges.identity import inspect_server
from gavel.judges.judge import BoundJudges
from gavel.judges.probe import REPEATS, ProbeReport, probe
from gavel.judges.rubric_form import lint_form
from gavel.judges.tables import checks_table, facts_table
from gavel.launch.assembly import Assembly, assemble
from gavel.launch.environment_controls import environment_controls, environment_rows
from gavel.launch.qualifying import (
    certificates_folder,
    certify,
    each_binding,
    keep_report,
    reach_judges,
    report_folder,
    say,
)
from gavel.launch.running.budget import Allowance, check_budget
from gavel.launch.running.session import BEGINS_ANEW, INCOMPLETE, STOPPED, WHOLE, run_async
from gavel.launch.schema import ProbeConfig
from gavel.models.errors import ConfigError
from gavel.models.failures import FailureKind
from gavel.models.pool import ServicePool
from gavel.models.service import config_key
from gavel.models.transport import credentials


def run(config: ProbeConfig, console: Console) -> int:
    """Run the verb; see ``gavel probe --help``. Returns 0 if every judge qualifies, 4 if the budget ended first, else 3."""
    if config.concurrency < 1:
        raise ConfigError("must be at least 1", field="concurrency", found=str(config.concurrency))
    check_budget(config.budget)
    assembly = assemble(config, with_policy=False)
    if config.dry_run:
        return _tell_plan(config, assembly, console)
    return run_async(lambda: _probe_all(config, assembly, console), console, BEGINS_ANEW)


def _tell_plan(config: ProbeConfig, assembly: Assembly, console: Console) -> int:
    own = len(environment_controls(config.env))
    for name, binding in assembly.bindings.items():
        controls, attacks = len(binding.rubric.controls), len(attacks_on(binding.rubric))
        calls = f"{controls} controls, {attacks} attacks and {controls * (REPEATS - 1)} repeats"
        through = f", and up to {own} answers through the whole environment" if own else ""
        say(console, f"binding {name}: would ask {config_key(binding.service)} {calls}{through}")
        say(console, f"binding {name}: {output_limit(binding)}")
        _show_prompts(binding, console)
    return WHOLE


def _show_prompts(binding: Binding, console: Console) -> None:
    """Show what a rubric of one's own would ask: every control's prompt, and what the rubric wastes."""
    form = form_of(binding.rubric)
    for control in binding.rubric.controls if form is not None else ():
        say(console, f"\n--- control {control.name}, expected {' or '.join(control.expected)}:")
        for message in binding.rubric.render(control.slots):
            say(console, message.content)
    _show_lint(binding, console)


def _show_lint(binding: Binding, console: Console) -> None:
    if (form := form_of(binding.rubric)) is not None:
        for line in lint_form(form):
            say(console, f"binding {binding.name}: {form.path}: {line}")


async def _probe_all(config: ProbeConfig, assembly: Assembly, console: Console) -> int:
    await reach_judges(assembly)
    folder, certificates = report_folder(config, "probe"), certificates_folder(config)
    allowance = Allowance(config.budget)

    async def one(binding: Binding, judge: BoundJudges, pool: ServicePool) -> ProbeReport:
        report = await _probe_one(binding, judge, pool, config.concurrency, known_fingerprint(certificates, binding))
        report = replace(report, rows=(*report.rows, *await environment_rows(config.env, binding.name, judge, pool.models)))
        if allowance.stopped is not None:  # what was refused is no finding
            report = replace(report, overflow=None, determinism=None, throughput=None)
        console.print(checks_table(report))
        console.print(facts_table(report))
        _show_lint(binding, console)
        if allowance.stopped is None:
            certify(certificates, binding, report, console)
        else:
            say(console, f"binding {binding.name}: no certificate, for not all was asked; missing: {_missing(report)}")
        return report

    reports = await each_binding(config, assembly, folder, console, one, allowance.model)
    keep_report(folder / "probe.json", reports, console)
    if allowance.stopped is not None:
        say(console, f"stopped: {allowance.stopped}; a probe begins anew each time: raise the budget")
        return STOPPED
    return WHOLE if all(report.qualified for report in reports) else INCOMPLETE


def _missing(report: ProbeReport) -> str:
    """Count what was not asked, by kind of check; overflow, determinism and throughput are never measured on a part."""
    kinds = dict.fromkeys(row.kind for row in report.rows)
    rows = {kind: [row for row in report.rows if row.kind == kind] for kind in kinds}
    unasked = {kind: sum(row.got == FailureKind.CANCELLED for row in found) for kind, found in rows.items()}
    parts = [f"{count} of {len(rows[kind])} {kind} rows" for kind, count in unasked.items() if count]
    return ", ".join([*parts, "overflow, determinism and throughput"])


async def _probe_one(binding: Binding, judge: BoundJudges, pool: ServicePool, concurrency: int, known: str | None) -> ProbeReport:
    service = binding.judge
    facts = None
    if service is not None:
        facts = await inspect_server(
            pool.urls(binding.service)[0], service.model or "", credentials(config_key(binding.service), service)
        )
    return await probe(binding, judge, server=facts, concurrency=concurrency, fingerprint=known)
