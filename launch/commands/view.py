"""``gavel view RUN``: a run in the browser while it grows."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from gavel.launch.config.schema import ViewConfig
from gavel.launch.report.server import serve_run
from gavel.launch.report.source import ReportSource, RunSource
from gavel.launch.report.training_source import TrainingSource
from gavel.launch.rollout.session import run_async
from gavel.launch.runs.child import find_existing_run
from gavel.launch.runs.training_plan import PLAN
from gavel.models.errors import ConfigError


def run(config: ViewConfig, console: Console) -> int:
    """Run the verb until Ctrl-C; see ``gavel view --help``. Returns the exit code."""
    if not 0 <= config.port <= 65535:
        raise ConfigError(
            "this is no port", field="port", found=str(config.port), allowed="0 to 65535; 0 picks a free one"
        )
    source = open_source(config.run.dir)
    return run_async(lambda: serve_run(source, config.port, console), console, "the page is served no more")


def open_source(name: str | None) -> ReportSource:
    """Return the rollout or the training run that stands in a folder.

    Raises:
        ConfigError: no run was named.
        RunFolderError: there is no run there.
    """
    if name and (Path(name).expanduser() / PLAN).is_file():
        return TrainingSource.open_training(Path(name).expanduser())
    return RunSource.open_run(find_existing_run(name, "view"))
