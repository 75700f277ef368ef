"""Exports of a run's figures to W&B and MLflow, which never stop a run: each is a process of its own with a time limit.

The trackers' own threads, signal handlers and exit hooks stay in that process. Whatever goes wrong there becomes one
line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from gavel.launch.config.schema import ExportConfig, MlflowExport, WandbExport
from gavel.launch.report.trackers.payload import Payload, make_payload
from gavel.launch.runs.manifest import read_manifest
from gavel.models.codec import record, to_json
from gavel.models.errors import ConfigError, shorten_value
from gavel.models.install import install_hint
from gavel.models.secrets import mask_keys

DONE = "exported: "
"""How the worker's last line begins when all went well."""
_MODULE = "gavel.launch.report.trackers.worker"
_SAID = 300
_WANDB_KEY = re.compile(r"[0-9a-f]{40}|wandb_v\d.*")


@record
class Job:
    """What the worker reads from its standard input: one of the two trackers, the run's folder, what is shown."""

    wandb: WandbExport | None
    mlflow: MlflowExport | None
    folder: str
    payload: Payload


@dataclass(frozen=True, slots=True)
class _Tracker:
    """A tracker that was asked for: ``extra`` is the extra of this package, ``module`` what it installs."""

    title: str
    extra: str
    module: str
    wandb: WandbExport | None = None
    mlflow: MlflowExport | None = None


def check_export(config: ExportConfig) -> None:
    """Refuse an export that cannot be meant.

    Raises:
        ConfigError: names the key; a time limit that is none, or a key where a name is wanted.
    """
    if not config.timeout_s > 0:
        raise ConfigError("must be more than 0", field="export.timeout_s", found=f"{config.timeout_s:g}")
    names = (
        ("wandb.project", config.wandb.project),
        ("wandb.entity", config.wandb.entity),
        ("wandb.group", config.wandb.group),
        ("wandb.name", config.wandb.name),
        ("mlflow.experiment", config.mlflow.experiment),
        ("mlflow.name", config.mlflow.name),
    )
    for field, value in names:
        if value is not None and (_WANDB_KEY.fullmatch(value) or mask_keys(value) != value):
            raise ConfigError(
                "this looks like a key, not a name",
                field=f"export.{field}",
                found="[secret]",
                remedy="W&B reads its key from the variable WANDB_API_KEY or from `wandb login`, MLflow from "
                "MLFLOW_TRACKING_TOKEN",
            )
    for field, address in (
        ("wandb.base_url", config.wandb.base_url),
        ("mlflow.tracking_uri", config.mlflow.tracking_uri),
    ):
        if "@" in (address or "").partition("://")[2].partition("/")[0] or mask_keys(address or "") != (address or ""):
            raise ConfigError(
                "an address may not hold a password or a key: it is stored with the run",
                field=f"export.{field}",
                found="[secret]",
                remedy="set WANDB_API_KEY; for MLflow MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or "
                "MLFLOW_TRACKING_TOKEN",
            )


def is_wanted(config: ExportConfig) -> bool:
    """Whether anything is to be exported."""
    return any(_list_trackers(config))


def _list_trackers(config: ExportConfig) -> Iterator[_Tracker]:
    if config.wandb.project:
        yield _Tracker("W&B", "wandb", "wandb", wandb=config.wandb)
    if config.mlflow.tracking_uri:
        yield _Tracker("MLflow", "mlflow", "mlflow", mlflow=config.mlflow)


@dataclass(frozen=True, slots=True)
class Exported:
    """What came of one export: ``line`` says it to a person, ``worked`` to a program."""

    line: str
    worked: bool


async def export_run(path: Path, config: ExportConfig) -> list[Exported]:
    """Export the finished run at ``path``; return what came of it for each tracker."""
    trackers = list(_list_trackers(config))
    if not trackers:
        return []
    try:
        manifest = read_manifest(path)
        payload = await asyncio.to_thread(make_payload, path, manifest) if manifest is not None else None
    except Exception as failed:  # noqa: BLE001 - the boundary of an export: a damaged file is a warning, and stops no run
        payload, reason = None, f"{type(failed).__name__}: {failed}"
    else:
        reason = "the folder holds no run"
    if payload is None:
        return [_describe_failed(tracker, reason) for tracker in trackers]
    return list(await asyncio.gather(*(_export_to(tracker, path, payload, config.timeout_s) for tracker in trackers)))


def _describe_failed(tracker: _Tracker, reason: str) -> Exported:
    one = mask_keys(shorten_value(" ".join(reason.split()), _SAID))
    return Exported(
        f"warning: {tracker.title}: not exported: {one}; the run is stored, `gavel export RUN …` tries again",
        worked=False,
    )


async def _export_to(tracker: _Tracker, path: Path, payload: Payload, limit_s: float) -> Exported:
    if find_spec(tracker.module) is None:
        return _describe_failed(tracker, f"`{tracker.module}` is not installed; {install_hint(tracker.extra)}")
    try:
        code, said, complaint = await _run_worker(_encode_job(tracker, path, payload), limit_s)
    except TimeoutError:
        return _describe_failed(tracker, f"no end within {limit_s:g} s (export.timeout_s)")
    except OSError as failed:
        return _describe_failed(tracker, str(failed))
    line = next((line for line in reversed(said.splitlines()) if line.startswith(DONE)), None)
    if code == 0 and line is not None:
        return Exported(f"{tracker.title}: {line}", worked=True)
    return _describe_failed(tracker, _read_reason(complaint) or f"the exporting process ended with code {code}")


def _encode_job(tracker: _Tracker, path: Path, payload: Payload) -> bytes:
    return to_json(Job(tracker.wandb, tracker.mlflow, str(path.absolute()), payload))


async def _run_worker(job: bytes, limit_s: float) -> tuple[int | None, str, str]:
    """Run the worker; kill it and what it started when the time is over or this is cancelled."""
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        _MODULE,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_make_environment(os.environ),
        start_new_session=True,
    )
    try:
        out, err = await asyncio.wait_for(worker.communicate(job), limit_s)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(worker.pid, signal.SIGKILL)  # also helpers that outlive the worker: all was written when it ended
        if worker.returncode is None:
            await worker.wait()
    return worker.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def _make_environment(ours: Mapping[str, str]) -> dict[str, str]:
    return {
        **ours,
        "WANDB_SILENT": "true",
        "WANDB_CONSOLE": "off",
        "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
        "PYTHONUNBUFFERED": "1",
    }


def _read_reason(complaint: str) -> str:
    """Return the last line of what the worker complained about."""
    return next((line.strip() for line in reversed(complaint.splitlines()) if line.strip()), "")
