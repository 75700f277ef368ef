"""The run that a command names, where it must be there."""

from __future__ import annotations

import shlex
from pathlib import Path

from gavel.launch.runs.lease import RunFolderError
from gavel.launch.runs.manifest import read_manifest
from gavel.launch.runs.sweep_index import INDEX
from gavel.launch.runs.training_plan import PLAN
from gavel.models.errors import ConfigError, find_nearest


def find_existing_run(name: str | None, verb: str) -> Path:
    """Return the folder of the run a verb works on.

    Raises:
        ConfigError: no run was named.
        RunFolderError: there is no run there.
    """
    if not name:
        raise ConfigError("no run is named", field="run.dir", remedy=f"name it: gavel {verb} runs/NAME …")
    path = Path(name).expanduser()
    if read_manifest(path) is None:
        _refuse_others(path)
        around = (
            [str(item) for item in path.parent.iterdir() if (item / "manifest.json").exists()]
            if path.parent.is_dir()
            else []
        )
        near = find_nearest(str(path), around)
        raise RunFolderError(
            "there is no run in this folder",
            where=str(path),
            found="no manifest.json",
            remedy=f"did you mean {near[0]}?" if near else "give the folder that `gavel rollout` wrote",
        )
    return path


def _refuse_others(path: Path) -> None:
    """Say what a folder is that is no run of ``gavel rollout``.

    Raises:
        RunFolderError: a training run, or a sweep.
    """
    word = shlex.quote(str(path))
    if (path / PLAN).is_file():
        raise RunFolderError(
            "this is a training run, which has no stored rows of this kind",
            where=str(path),
            remedy=f"its steps and samples: gavel view {word}; its curve: gavel report {word}; how it goes: gavel "
            f"status {word}; "
            "two of them: gavel compare RUN RUN",
        )
    if (path / INDEX).is_file():
        raise RunFolderError(
            "this is a sweep, not a run",
            where=str(path),
            remedy=f"name one of its points, such as {path}/000-…; all of them: gavel compare {word}, gavel "
            f"status {word}",
        )
