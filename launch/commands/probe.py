"""``gavel probe``: known answers and attacks on each binding, a table each, the report in the run folder, a
certificate.
"""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from gavel.envs.slot_texts import find_form
from gavel.judges.bindings import Binding, describe_judges, describe_output_limit
from gavel.judges.certificate import find_known_fingerprint
from gavel.judges.judge import BoundJudges
from gavel.judges.probing.attacks import list_attacks
from gavel.judges.probing.identity import inspect_server
from gavel.judges.probing.probe import REPEATS, KnownAnswers, ProbeReport, probe_answers, report_panel
from gavel.judges.rubrics.form import lint_form
from gavel.judges.tables import make_checks_table, make_facts_table
from gavel.launch.assembly.assemble import Assembly, assemble_run
from gavel.launch.assembly.environment_controls import load_environment_controls, play_environment_controls
from gavel.launch.assembly.measuring import (
    certify_binding,
    check_judges_reached,
    find_certificates_folder,
    keep_report,
    measure_each_binding,
    print_line,
    report_folder,
)
from gavel.launch.config.schema import ProbeConfig
from gavel.launch.rollout.budget import Allowance, check_budget
from gavel.launch.rollout.session import BEGINS_ANEW, INCOMPLETE, STOPPED, WHOLE, run_async
from gavel.models.calls.transport import read_credentials
from gavel.models.errors import ConfigError
from gavel.models.failures import FailureKind
from gavel.models.pool import ServicePool
from gavel.models.service import get_config_key


def run(config: ProbeConfig, console: Console) -> int:
    """Run the verb; see ``gavel probe --help``.

    Returns 0 if every judge qualifies, 4 if the budget ended first, else 3.
    """
    if config.concurrency < 1:
        raise ConfigError("must be at least 1", field="concurrency", found=str(config.concurrency))
    check_budget(config.budget)
    assembly = assemble_run(config, with_policy=False)
    if config.dry_run:
        return _tell_plan(config, assembly, console)
    return run_async(lambda: _probe_all(config, assembly, console), console, BEGINS_ANEW)


def _tell_plan(config: ProbeConfig, assembly: Assembly, console: Console) -> int:
    own = len(load_environment_controls(config.env))
    for name, binding in assembly.bindings.items():
        controls, attacks = len(binding.rubric.controls), len(list_attacks(binding.rubric))
        calls = f"{controls} controls, {attacks} attacks and {controls * (REPEATS - 1)} repeats"
        through = f", and up to {own} answers through the whole environment" if own else ""
        print_line(console, f"binding {name}: would ask {describe_judges(binding)} {calls}{through}")
        print_line(console, f"binding {name}: {describe_output_limit(binding)}")
        _show_prompts(binding, console)
    return WHOLE


def _show_prompts(binding: Binding, console: Console) -> None:
    """Show what a rubric of one's own would ask: every control's prompt, and what the rubric wastes."""
    form = find_form(binding.rubric)
    for control in binding.rubric.controls if form is not None else ():
        print_line(console, f"\n--- control {control.name}, expected {' or '.join(control.expected)}:")
        for message in binding.rubric.render(control.slots):
            print_line(console, message.content)
    _show_lint(binding, console)


def _show_lint(binding: Binding, console: Console) -> None:
    if (form := find_form(binding.rubric)) is not None:
        for line in lint_form(form):
            print_line(console, f"binding {binding.name}: {form.path}: {line}")


async def _probe_all(config: ProbeConfig, assembly: Assembly, console: Console) -> int:
    await check_judges_reached(assembly)
    folder, certificates = report_folder(config, "probe"), find_certificates_folder(config)
    allowance = Allowance(config.budget)

    async def probe_one(binding: Binding, judge: BoundJudges, pool: ServicePool) -> list[ProbeReport]:
        asked = [
            await _probe_one(one, judge, pool, config.concurrency, find_known_fingerprint(certificates, one))
            for one in binding.judges
        ]
        reports = [report for report, _ in asked]
        if binding.members:
            reports.append(report_panel(binding, [answers for _, answers in asked]))
        played = await play_environment_controls(config.env, binding.name, judge, pool.models)
        reports[-1] = replace(reports[-1], rows=(*reports[-1].rows, *played))
        if allowance.stopped is not None:  # what was refused is no finding
            reports = [replace(report, overflow=None, determinism=None, throughput=None) for report in reports]
        for one, report in zip((*binding.members, binding), reports, strict=True):
            _tell_report(one, report, console)
            if allowance.stopped is None:
                certify_binding(certificates, one, report, console)
            else:
                missing = _count_missing(report)
                print_line(console, f"binding {one.name}: no certificate, for not all was asked; missing: {missing}")
        _show_lint(binding, console)
        return reports

    reports = await measure_each_binding(config, assembly, folder, console, probe_one, allowance.bound_model)
    keep_report(folder / "probe.json", reports, console)
    if allowance.stopped is not None:
        print_line(console, f"stopped: {allowance.stopped}; a probe begins anew each time: raise the budget")
        return STOPPED
    return WHOLE if all(report.qualified for report in reports) else INCOMPLETE


def _tell_report(binding: Binding, report: ProbeReport, console: Console) -> None:
    console.print(make_checks_table(report))
    console.print(make_facts_table(report))
    if binding.rule is not None:
        print_line(console, f"binding {binding.name}: {describe_judges(binding)}, read off its members' answers")


def _count_missing(report: ProbeReport) -> str:
    """Count what was not asked, by kind of check; overflow, determinism and throughput are never measured on a part."""
    kinds = dict.fromkeys(row.kind for row in report.rows)
    rows = {kind: [row for row in report.rows if row.kind == kind] for kind in kinds}
    unasked = {kind: sum(row.got == FailureKind.CANCELLED for row in found) for kind, found in rows.items()}
    parts = [f"{count} of {len(rows[kind])} {kind} rows" for kind, count in unasked.items() if count]
    return ", ".join([*parts, "overflow, determinism and throughput"])


async def _probe_one(
    binding: Binding, judge: BoundJudges, pool: ServicePool, concurrency: int, known: str | None
) -> tuple[ProbeReport, KnownAnswers]:
    service = binding.judge
    facts = None
    if service is not None:
        facts = await inspect_server(
            pool.list_urls(binding.service)[0],
            service.model or "",
            read_credentials(get_config_key(binding.service), service),
        )
    return await probe_answers(binding, judge, server=facts, concurrency=concurrency, fingerprint=known)
