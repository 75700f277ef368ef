"""``gavel export``: the figures of a stored run, to W&B or MLflow; doing it twice brings the same run there up to
date.
"""

from __future__ import annotations

import shlex

from rich.console import Console

from gavel.launch.config.console import print_line
from gavel.launch.config.schema import ExportRunConfig
from gavel.launch.report.trackers.start import check_export, export_run, is_wanted
from gavel.launch.rollout.session import BEGINS_ANEW, INCOMPLETE, WHOLE, run_async
from gavel.launch.runs.child import find_existing_run
from gavel.models.errors import ConfigError


def run(config: ExportRunConfig, console: Console) -> int:
    """Run the verb; see ``gavel export --help``. Returns 0, or 3 where an export failed."""
    path = find_existing_run(config.run.dir, "export")
    check_export(config.export)
    if not is_wanted(config.export):
        raise ConfigError(
            "no place to export to is named",
            field="export",
            allowed="export.wandb.project=…, export.mlflow.tracking_uri=…",
            remedy=f"for example: gavel export {shlex.quote(str(path))} export.wandb.project=gavel",
        )

    async def export_and_say() -> int:
        found = await export_run(path, config.export)
        for one in found:
            print_line(console, one.line)
        return WHOLE if all(one.worked for one in found) else INCOMPLETE

    return run_async(export_and_say, console, BEGINS_ANEW)
