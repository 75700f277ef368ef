"""``gavel calibrate``: agreement of each binding's judge with labelled answers, into tables and the certificate.

With ``upstream`` it compares a finished run with the code that its environment follows instead.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from gavel.envs.registry import find_upstream_comparison
from gavel.judges.assets import AssetsConfig
from gavel.judges.bindings import Binding, describe_judges
from gavel.judges.calibration.calibrate import calibrate_judge, calibrate_panel
from gavel.judges.calibration.labelled import LabelledSet, read_labelled
from gavel.judges.calibration.report import CalibrationReport, CascadeReport
from gavel.judges.judge import BoundJudges
from gavel.judges.tables import make_agreement_table, make_cascade_table, make_confusion_table
from gavel.launch.assembly.assemble import Assembly, assemble_run
from gavel.launch.assembly.measuring import (
    certify_binding,
    check_judges_reached,
    find_certificates_folder,
    keep_report,
    measure_each_binding,
    print_line,
    report_folder,
)
from gavel.launch.config.schema import CalibrateConfig
from gavel.launch.config.task_paths import resolve_task_path
from gavel.launch.rollout.budget import Allowance, check_budget
from gavel.launch.rollout.session import BEGINS_ANEW, INCOMPLETE, STOPPED, WHOLE, run_async
from gavel.launch.runs.child import find_existing_run, read_run_config
from gavel.launch.runs.folder import read_results
from gavel.models.errors import ConfigError
from gavel.models.pool import ServicePool


def run(config: CalibrateConfig, console: Console) -> int:
    """Run the verb; see ``gavel calibrate --help``. Returns 0; 3 where the judge left items ungraded or something
    differs; 4 if the budget ended first."""
    if config.upstream is not None:
        return _compare_run(config, config.upstream, console)
    _check_numbers(config)
    check_budget(config.budget)
    assembly = assemble_run(config, with_policy=False)
    sets = {name: _read_labelled(config, binding) for name, binding in assembly.bindings.items()}
    if config.dry_run:
        for name, labelled in sets.items():
            calls = len(labelled.items) * config.repeats
            print_line(
                console,
                f"binding {name}: would ask {describe_judges(assembly.bindings[name])} {calls} times about "
                f"{config.labelled}",
            )
        return WHOLE
    return run_async(lambda: _calibrate_all(config, assembly, sets, console), console, BEGINS_ANEW)


def _compare_run(config: CalibrateConfig, upstream: str, console: Console) -> int:
    """Compare a finished run with upstream's own code; return 0 if all is identical, else 3."""
    path = find_existing_run(config.run.dir, "calibrate")
    own = read_run_config(path)
    assets = own.assets if config.assets == AssetsConfig() else config.assets
    compare = find_upstream_comparison(own.env)
    if config.dry_run:
        print_line(console, f"would compare {path} with {upstream}")
        return WHOLE
    environment = assemble_run(
        replace(own, assets=assets, run=config.run), with_policy=False, grading_only=True
    ).environment
    python = str(Path(config.upstream_python).expanduser()) if config.upstream_python else sys.executable
    found = compare(environment, list(read_results(path)), upstream, run=path.name, python=python)
    for line in found.describe_lines():
        print_line(console, line)
    return WHOLE if found.identical else INCOMPLETE


def _check_numbers(config: CalibrateConfig) -> None:
    for key in ("concurrency", "repeats", "draws"):
        if getattr(config, key) < 1:
            raise ConfigError("must be at least 1", field=key, found=str(getattr(config, key)))
    if not config.labelled:
        raise ConfigError(
            "no labelled file is named",
            field="labelled",
            allowed="a JSONL file: the rubric's slots and `label` in each row",
            remedy="set labelled=FILE; env=abstention comes with a set",
        )


def _read_labelled(config: CalibrateConfig, binding: Binding) -> LabelledSet:
    labelled = read_labelled(resolve_task_path(config.labelled or ""), binding.rubric)
    return labelled if config.limit is None else replace(labelled, items=labelled.items[: config.limit])


async def _calibrate_all(
    config: CalibrateConfig, assembly: Assembly, sets: dict[str, LabelledSet], console: Console
) -> int:
    await check_judges_reached(assembly)
    folder, certificates = report_folder(config, "calibrate"), find_certificates_folder(config)
    allowance = Allowance(config.budget)

    async def calibrate_one(
        binding: Binding,
        judge: BoundJudges,
        pool: ServicePool,  # noqa: ARG001 - shape of `measure`
    ) -> tuple[CalibrationReport, ...]:
        reports = await _calibrate_binding(config, binding, judge, sets[binding.name])
        for one, report in zip((*binding.members, binding), reports, strict=True):
            console.print(make_confusion_table(report))
            console.print(make_agreement_table(report))
            if report.cascade is not None:
                console.print(make_cascade_table(report.cascade))
                print_line(console, _tell_trusted(binding, report.cascade))
            if allowance.stopped is not None:
                print_line(console, f"binding {one.name}: no certificate, for not all was asked")
            elif config.limit is None:  # a part of the set says nothing that could be certified
                certify_binding(certificates, _trust_measured(one, report), report, console)
        return reports

    reports = await measure_each_binding(config, assembly, folder, console, calibrate_one, allowance.bound_model)
    keep_report(folder / "calibration.json", reports, console)
    if allowance.stopped is not None:
        print_line(console, f"stopped: {allowance.stopped}; a calibration begins anew each time: raise the budget")
        return STOPPED
    return INCOMPLETE if any(report.ungraded for report in reports) else WHOLE


async def _calibrate_binding(
    config: CalibrateConfig, binding: Binding, judge: BoundJudges, labelled: LabelledSet
) -> tuple[CalibrationReport, ...]:
    """Return the report of a binding, or those of a panel's members and then its own."""
    if binding.members:
        return await calibrate_panel(
            binding,
            judge,
            labelled,
            concurrency=config.concurrency,
            repeats=config.repeats,
            draws=config.draws,
            seed=config.seed,
        )
    report = await calibrate_judge(
        binding,
        judge,
        labelled,
        concurrency=config.concurrency,
        repeats=config.repeats,
        draws=config.draws,
        seed=config.seed,
    )
    return (report,)


def _trust_measured(binding: Binding, report: CalibrationReport) -> Binding:
    """Return a cascade as it was measured: with the labels that it may trust."""
    if report.cascade is None or binding.rule is None:
        return binding
    return replace(binding, rule=replace(binding.rule, trusted=report.cascade.trusted))


def _tell_trusted(binding: Binding, cascade: CascadeReport) -> str:
    if not cascade.trusted:
        return f"binding {binding.name}: no label may be trusted: more labelled items, or a lower min_precision"
    key = f"judging.bindings.{binding.name}.cascade.trusted"
    return f"binding {binding.name}: to grade as it was measured: {key}=[{','.join(cascade.trusted)}]"
