"""What ``probe`` and ``calibrate`` share: the judges started, each binding measured in turn, the report kept."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from gavel.judges.bindings import Binding
from gavel.judges.calibration.report import CalibrationReport
from gavel.judges.certificate import write_certificate
from gavel.judges.judge import BoundJudges
from gavel.judges.probing.probe import ProbeReport
from gavel.launch.assembly.assemble import Assembly, make_asset_store
from gavel.launch.config.schema import CalibrateConfig, ProbeConfig
from gavel.launch.config.stored import to_yaml
from gavel.models.calls.contact import check_first_contact
from gavel.models.codec import to_json
from gavel.models.errors import InputError
from gavel.models.pool import ServicePool, open_services
from gavel.models.service import get_config_key
from gavel.models.types import ChatModel

T = TypeVar("T")


async def check_judges_reached(assembly: Assembly) -> None:
    """See that every judge that is served elsewhere is there, before anything is asked or written.

    Raises:
        ConfigError: one is not; names its URL and why.
    """
    for name in dict.fromkeys(one.service for binding in assembly.bindings.values() for one in binding.judges):
        await check_first_contact(get_config_key(name), assembly.services[name])


async def measure_each_binding(
    config: ProbeConfig | CalibrateConfig,
    assembly: Assembly,
    folder: Path,
    console: Console,
    measure: Callable[[Binding, BoundJudges, ServicePool], Awaitable[Sequence[T]]],
    model: Callable[[ServicePool, str], ChatModel] = ServicePool.get_model,
) -> list[T]:
    """Start the judges and measure each binding, of a panel each member and the whole; the judge given asks the
    ``model`` of its service each time, past any cache.
    """
    store = make_asset_store(config.assets)
    judging = {one.service for binding in assembly.bindings.values() for one in binding.judges}
    services = {name: service for name, service in assembly.services.items() if name in judging}
    async with open_services(
        services,
        log_dir=folder / "logs",
        progress=lambda line: print_line(console, line),
        assets_cache=store.cache,
        mirror=store.mirror,
        offline=store.offline,
    ) as pool:
        judge = BoundJudges(assembly.bindings, partial(model, pool), fresh=True)
        return [report for binding in assembly.bindings.values() for report in await measure(binding, judge, pool)]


def report_folder(config: ProbeConfig | CalibrateConfig, verb: str) -> Path:
    """Make the folder of the report and write the config into it.

    Raises:
        InputError: it cannot be written.
    """
    folder = Path(config.run.dir or time.strftime(f"runs/{verb}-%Y%m%d-%H%M%S")).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{verb}.yaml").write_text(to_yaml(config), encoding="utf-8")
    except OSError as failed:
        raise _make_write_error(folder, failed) from None
    return folder


def certify_binding(folder: Path, binding: Binding, report: ProbeReport | CalibrationReport, console: Console) -> None:
    """Write a report into the binding's certificate and say where; without a graded row there is nothing to certify."""
    if not report.graded:
        print_line(console, "no certificate: nothing was graded")
    elif isinstance(report, ProbeReport):
        print_line(console, f"certificate: {write_certificate(folder, binding, probe=report)}")
    else:
        print_line(console, f"certificate: {write_certificate(folder, binding, calibration=report)}")


def find_certificates_folder(config: ProbeConfig | CalibrateConfig) -> Path:
    """Return the folder of certificates."""
    return Path(config.certificates).expanduser()


def keep_report(path: Path, reports: object, console: Console) -> None:
    """Write the reports as JSON and say where.

    Raises:
        InputError: they cannot be written.
    """
    try:
        path.write_bytes(to_json(reports) + b"\n")
    except OSError as failed:
        raise _make_write_error(path, failed) from None
    print_line(console, f"report: {path}")


def _make_write_error(path: Path, failed: OSError) -> InputError:
    return InputError(
        "this cannot be written",
        where=str(path),
        found=failed.strerror or str(failed),
        remedy="free space or choose another run.dir=…",
    )


def print_line(console: Console, text: str) -> None:
    """Print one line as it is."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
