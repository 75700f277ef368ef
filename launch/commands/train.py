"""``gavel train``: everything checked, a run folder written, the trainer started here or handed to Slurm together with
its judge.
"""

from __future__ import annotations

import shlex
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gavel.judges.bindings import describe_output_limit
from gavel.launch.config.console import print_line
from gavel.launch.config.schema import TrainConfig
from gavel.launch.training.job import run_training
from gavel.launch.training.layout import describe_layout
from gavel.launch.training.preflight import Checked, check_run
from gavel.launch.training.start import FINISHED, SUBMITTED, is_done, prepare_run, start_judge, start_slurm, write_run
from gavel.launch.training.trainer import ComposedTraining
from gavel.launch.training.trainers import find_trainer
from gavel.models.errors import Findings


def run(config: TrainConfig, console: Console) -> int:
    """Run the verb; see ``gavel train --help``.

    Returns the exit code: of the trainer if it runs here, 0 once Slurm has the job.
    """
    path = (
        Path(config.run.dir or time.strftime(f"runs/train-{config.env['name']}-%Y%m%d-%H%M%S")).expanduser().absolute()
    )
    checked = check_run(config, path)
    if config.dry_run:
        return _show_plan(config, path, checked, console)
    if checked.findings:
        raise Findings(checked.findings)
    prepared = prepare_run(config, path, checked)
    if is_done(prepared):
        print_line(
            console,
            f"run folder: {path}\nthis run is finished, nothing is started: gavel status {shlex.quote(str(path))}",
        )
        return FINISHED
    write_run(prepared)
    if config.cluster.kind == "slurm":
        print_line(
            console, f"job {start_slurm(config, prepared, console)} is submitted; nothing needs to stay running here"
        )
        print_line(console, f"run folder: {path}\nhow it goes: gavel status {shlex.quote(str(path))}")
        return SUBMITTED
    start_judge(config, prepared, console)
    code = run_training(path, follow=True)
    print_line(console, f"run folder: {path}")
    return code


def _show_plan(config: TrainConfig, path: Path, checked: Checked, console: Console) -> int:
    """Show what would be done: every file and command, the arithmetic, and every finding."""
    trainer = find_trainer(config.trainer.kind)
    table = Table("what", "how", title="dry run: nothing is started or written", title_justify="left", show_edge=False)
    if checked.layout is not None and checked.assembly is not None:
        services, layout = checked.assembly.services, checked.layout
        for what, how in describe_layout(config, layout, services, judged=checked.judged, on_cpu=trainer.on_cpu):
            table.add_row(what, Text(how))
        training = ComposedTraining(config, checked.assembly, layout, path)
        for what, how in trainer.describe(training, checked.config_text, checked.judged):
            table.add_row(what, Text(how))
    if not checked.judged:
        table.add_row("judge", Text("no judge is asked: programs check these tasks alone"))
    for name, binding in checked.assembly.bindings.items() if checked.assembly is not None and checked.judged else ():
        table.add_row(f"binding {name}", Text(describe_output_limit(binding)))
    for waived in checked.unqualified:
        table.add_row("waived", Text(waived))
    table.add_row("run folder", Text(str(path)))
    console.print(table)
    if checked.config_text:
        prepared = prepare_run(config, path, checked)
        for name, text in prepared.files.items():
            if name != "config.yaml":
                print_line(console, f"\n--- {path / name}\n{text}")
        print_line(console, f"--- the trainer's command\n{shlex.join(prepared.plan.command)}")
        first = shlex.join(("sbatch" if config.cluster.kind == "slurm" else "bash", str(path / prepared.script)))
        print_line(console, f"--- started with\n{first}")
    if checked.findings:
        raise Findings(checked.findings)
    return 0
