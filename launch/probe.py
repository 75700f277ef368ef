"""``gavel probe``: known-answer controls and attacks on each binding, a table each, and the whole report in the run folder."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from gavel.judges.attacks import attacks_on
from gavel.judges.bindings import Binding
from gavel.judges.identity import inspect_server
from gavel.judges.judge import BoundJudges
from gavel.judges.probe import REPEATS, ProbeReport, probe
from gavel.judges.tables import checks_table, facts_table
from gavel.launch.assembly import Assembly, assemble, asset_store
from gavel.launch.config import to_yaml
from gavel.launch.schema import ProbeConfig
from gavel.launch.session import INCOMPLETE, WHOLE, run_async
from gavel.models.codec import to_json
from gavel.models.errors import ConfigError, InputError
from gavel.models.pool import ServicePool, open_services


def run(config: ProbeConfig, console: Console) -> int:
    """Run the verb; see ``gavel probe --help``. Returns 0 if every judge qualifies, else 3."""
    if config.concurrency < 1:
        raise ConfigError("must be at least 1", field="concurrency", found=str(config.concurrency))
    assembly = assemble(config, with_policy=False)
    if config.dry_run:
        return _tell_plan(assembly, console)
    return run_async(lambda: _probe_all(config, assembly, console), console)


def _tell_plan(assembly: Assembly, console: Console) -> int:
    for name, binding in assembly.bindings.items():
        controls, attacks = len(binding.rubric.controls), len(attacks_on(binding.rubric))
        calls = f"{controls} controls, {attacks} attacks and {controls * (REPEATS - 1)} repeats"
        _say(console, f"binding {name}: would ask {binding.service} {calls}")
    return WHOLE


async def _probe_all(config: ProbeConfig, assembly: Assembly, console: Console) -> int:
    folder, store = _folder(config), asset_store(config.assets)
    judging = {binding.service for binding in assembly.bindings.values()}
    services = {name: service for name, service in assembly.services.items() if name in judging}
    reports = []
    async with open_services(
        services, log_dir=folder / "logs", progress=lambda line: _say(console, line),
        assets_cache=store.cache, mirror=store.mirror, offline=store.offline,
    ) as pool:  # fmt: skip
        judge = BoundJudges(assembly.bindings, pool.model, fresh=True)
        for binding in assembly.bindings.values():
            reports.append(await _probe_one(binding, judge, pool, config.concurrency))
            console.print(checks_table(reports[-1]))
            console.print(facts_table(reports[-1]))
    _write(folder / "probe.json", reports)
    _say(console, f"report: {folder / 'probe.json'}")
    return WHOLE if all(report.qualified for report in reports) else INCOMPLETE


async def _probe_one(binding: Binding, judge: BoundJudges, pool: ServicePool, concurrency: int) -> ProbeReport:
    service = binding.judge
    facts = None
    if service is not None:
        # A server that wants a key for this answers nothing, and the report then says that it could not be checked.
        facts = await inspect_server(pool.urls(binding.service)[0], service.model or "", service.default_headers)
    return await probe(binding, judge, server=facts, concurrency=concurrency)


def _folder(config: ProbeConfig) -> Path:
    folder = Path(config.run.dir or time.strftime("runs/probe-%Y%m%d-%H%M%S")).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "probe.yaml").write_text(to_yaml(config), encoding="utf-8")
    except OSError as failed:
        raise _unwritable(folder, failed) from None
    return folder


def _write(path: Path, reports: list[ProbeReport]) -> None:
    try:
        path.write_bytes(to_json(reports) + b"\n")
    except OSError as failed:
        raise _unwritable(path, failed) from None


def _unwritable(path: Path, failed: OSError) -> InputError:
    return InputError(
        "this cannot be written", where=str(path), found=failed.strerror or str(failed), remedy="free space or choose another run.dir=…"
    )


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
