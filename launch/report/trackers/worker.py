"""The process that exports one run to one tracker: a job as JSON on standard input, one line on standard output.

Run by ``gavel.launch.report.trackers.start`` as ``python -m``; ends with code 1 and the reason as the last line of
standard error.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gavel.launch.config.schema import MlflowExport, WandbExport
from gavel.launch.report.trackers.payload import Payload
from gavel.launch.report.trackers.start import DONE, Job
from gavel.models.codec import decode, to_json

_NOT_IN_NAMES = re.compile(r"[^\w/. -]")
_BATCH = 100
"""Params that MLflow takes at once (metrics: 1000)."""
_LONGEST = 500
"""Characters of a param that every version of MLflow's server takes."""


def main() -> int:
    """Export; return the exit code."""
    job = decode(Job, sys.stdin.buffer.read())
    try:
        if job.wandb is not None:
            told = to_wandb(job.wandb, Path(job.folder), job.payload)
        elif job.mlflow is not None:
            told = to_mlflow(job.mlflow, job.payload)
        else:
            told = "nothing"
    except Exception as failed:  # noqa: BLE001 - whatever a tracker raises is one line for the run that waits for us
        sys.stderr.write(f"\n{type(failed).__name__}: {' '.join(str(failed).split())}\n")
        return 1
    sys.stdout.write(f"\n{DONE}{told}\n")
    sys.stdout.flush()
    return 0


def to_wandb(options: WandbExport, folder: Path, payload: Payload) -> str:
    """Write the run to W&B; return where it is."""
    import wandb

    settings: dict[str, Any] = {
        "silent": True,
        "console": "off",
        "disable_git": True,
        "save_code": False,
        "x_disable_meta": True,
    }
    if options.base_url is not None:
        settings["base_url"] = options.base_url
    run = wandb.init(
        project=options.project,
        entity=options.entity,
        group=options.group,
        name=options.name or payload.name,
        id=payload.run_id,
        resume="allow" if options.mode == "online" else None,
        mode=options.mode,
        dir=str(folder),
        config=dict(payload.config),
        notes=payload.note or None,
        tags=[f"kind:{payload.tags['kind']}"],
        job_type=payload.tags["kind"],
        settings=wandb.Settings(**settings),
    )
    run.config.update({f"run.{name}": value for name, value in payload.tags.items()}, allow_val_change=True)
    tables = {
        name: wandb.Table(columns=list(table.columns), data=[list(row) for row in table.rows])
        for name, table in payload.tables.items()
    }
    run.log({**payload.numbers, **tables})
    run.summary.update(dict(payload.numbers))
    run.save(str(folder / "metrics.json"), base_path=str(folder), policy="now")
    run.finish()
    return f"{run.url}" if options.mode == "online" else f"offline, in {folder / 'wandb'}; `wandb sync` sends it"


def to_mlflow(options: MlflowExport, payload: Payload) -> str:
    """Write the run to MLflow; one that was exported before is brought up to date. Returns where it is."""
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=options.tracking_uri)
    found = client.get_experiment_by_name(options.experiment)
    experiment = found.experiment_id if found is not None else client.create_experiment(options.experiment)
    earlier = client.search_runs([experiment], f"tags.`gavel.run` = '{payload.run_id}'", max_results=1)
    run = (
        earlier[0]
        if earlier
        else client.create_run(experiment, run_name=options.name or payload.name, tags={"gavel.run": payload.run_id})
    )
    run_id, now = run.info.run_id, int(time.time() * 1000)
    tags = {
        **{f"gavel.{name}": value for name, value in payload.tags.items()},
        **({"mlflow.note.content": payload.note} if payload.note else {}),
    }
    known = dict(run.data.params)  # a param cannot be changed, and one that was set stays
    params = [
        Param(_make_name(key), _make_text(value))
        for key, value in payload.config.items()
        if _make_name(key) not in known
    ]
    metrics = [Metric(name, value, now, 0) for name, value in _separate_names(payload.numbers).items()]
    client.log_batch(run_id, tags=[RunTag(key, value) for key, value in tags.items()])
    for start in range(0, len(params), _BATCH):
        client.log_batch(run_id, params=params[start : start + _BATCH])
    for start in range(0, len(metrics), _BATCH):
        client.log_batch(run_id, metrics=metrics[start : start + _BATCH])
    client.log_text(run_id, to_json(payload.document).decode(), "metrics.json")
    client.log_text(run_id, to_json(payload.config).decode(), "config.json")
    for name, table in payload.tables.items():
        rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        client.log_text(run_id, to_json(rows).decode(), f"{_make_name(name)}.json")
    client.set_terminated(run_id, "FINISHED")
    return f"experiment {options.experiment}, run {run_id}"


def _make_name(text: str) -> str:
    """Return a name that MLflow takes: letters, digits, ``_ - .

    /`` and blanks; ``accuracy@law`` becomes ``accuracy_at_law``.
    """
    return _NOT_IN_NAMES.sub("_", text.replace("@", "_at_"))


def _separate_names(numbers: Mapping[str, float]) -> dict[str, float]:
    """Return the numbers under MLflow's names, none of which is the folder of another: one of its stores keeps each in
    a file.
    """
    named = {_make_name(name): value for name, value in numbers.items()}
    folders = {name[:place] for name in named for place, letter in enumerate(name) if letter == "/"}
    return {f"{name}_" if name in folders else name: value for name, value in named.items()}


def _make_text(value: object) -> str:
    return ("null" if value is None else str(value))[:_LONGEST]


if __name__ == "__main__":
    sys.exit(main())
