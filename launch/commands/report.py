"""``gavel report RUN``: the run as one page (``html``), as Markdown or as CSV; of a training run its curve."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from gavel.launch.config.os_errors import make_file_place
from gavel.launch.config.schema import ReportConfig
from gavel.launch.report.training import write_training
from gavel.launch.report.write import write_report
from gavel.launch.runs.child import find_existing_run
from gavel.launch.runs.training_plan import PLAN


def run(config: ReportConfig, console: Console) -> int:
    """Run the verb; see ``gavel report --help``. Returns 0."""
    begun = time.monotonic()
    if config.run.dir and (training := Path(config.run.dir).expanduser() / PLAN).is_file():
        file = training.parent / f"report.{config.format}" if not config.out else make_file_place(config.out, "out")
        steps = write_training(training.parent, file, config.format)
        console.print(f"written: {file} ({steps} steps)", highlight=False, soft_wrap=True, markup=False)
        return 0
    path = find_existing_run(config.run.dir, "report")
    file = make_file_place(config.out, "out") if config.out else path / f"report.{config.format}"
    size, rows = write_report(path, file, config.format)
    took = f"{rows} rows, {size / 1e6:.1f} MB, {time.monotonic() - begun:.1f} s"
    console.print(f"written: {file} ({took})", highlight=False, soft_wrap=True, markup=False)
    return 0
