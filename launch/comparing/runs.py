"""Which runs ``gavel compare`` was given: run folders, or a sweep whose points are the runs; and what its training runs
are.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gavel.envs.registry import describe_environment, find_reward
from gavel.launch.comparing.ledgers import read_samples
from gavel.launch.comparing.training import TrainedRun
from gavel.launch.runs.child import format_options
from gavel.launch.runs.sweep_index import INDEX, SweepIndex, SweepPoint, read_index
from gavel.launch.runs.training_plan import PLAN
from gavel.models.errors import ConfigError, GavelError

_SEED = re.compile(r"\+?seed=")


@dataclass(frozen=True, slots=True)
class Named:
    """A run folder, and the words it differs in from the other points of its sweep (empty for a run that was named
    itself).
    """

    path: Path
    words: tuple[str, ...] = ()


def expand_names(names: Sequence[str]) -> tuple[list[Named], list[str]]:
    """Return the runs that words name, a sweep's points in its place; and a note for each point that has no run to be
    compared.

    Raises:
        ConfigError: a sweep has fewer than two runs.
        InputError: a sweep's index is damaged.
    """
    runs: list[Named] = []
    notes: list[str] = []
    for name in names:
        path = Path(name).expanduser()
        if not (path / INDEX).is_file():
            runs.append(Named(path))
            continue
        index = read_index(path)
        there = [point for point in index.points if _is_there(path, index, point)]
        notes += [
            f"{point.name} is left out: {point.note or point.state}" for point in index.points if point not in there
        ]
        if len(there) < 2:
            raise ConfigError(
                "this sweep has fewer than two runs to compare",
                field="runs",
                found=f"{len(there)} of {len(index.points)}",
                where=name,
                remedy=f"see what became of the others: gavel status {shlex.quote(name)}",
            )
        runs += [Named(path / point.name, point.overrides) for point in there]
    return runs, notes


def _is_there(folder: Path, index: SweepIndex, point: SweepPoint) -> bool:
    run = folder / point.name
    if index.verb == "train":
        return (run / "ledger" / "steps.jsonl").is_file()
    return (run / "manifest.json").is_file()


def is_training(run: Named) -> bool:
    """Tell whether a folder is that of a training run."""
    return (run.path / PLAN).is_file()


def read_training_runs(runs: Sequence[Named], *, traits: bool = False) -> list[TrainedRun]:
    """Read training runs. The points of a sweep that differ in nothing but their seed are one group; any other run is
    its own. ``traits``: measure what their replies are like, too.

    Raises:
        ConfigError: a run has not done a step.
        InputError: a ledger is damaged.
    """
    names = choose_names([run.path for run in runs])
    found = []
    for name, run in zip(names, runs, strict=True):
        config = read_config(run.path)
        samples = read_samples(run.path, clusters=find_clusters(config.get("env") or {}), traits=traits)
        if not samples:
            raise ConfigError(
                "this training run has no step in its ledger",
                field="runs",
                found=str(run.path),
                remedy=shlex.join(("gavel", "status", str(run.path))),
            )
        words = [word for word in run.words if not _SEED.match(word)]
        group = " ".join(words) or ("all points" if run.words else name)
        reward = config.get("reward") or {}
        found.append(
            TrainedRun(name, group, int(config.get("seed") or 0), format_options(reward), samples, find_bounds(reward))
        )
    return found


def find_bounds(reward: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the least and greatest reward of a policy's options, None where there are none or they are not known."""
    made = find_reward(reward)
    return None if made is None else made.bounds


def find_clusters(env: Mapping[str, Any]) -> str | None:
    """Return the field that an environment's rows are clustered by, None where it is the task or not known."""
    try:
        return describe_environment(env).clusters
    except GavelError:
        return None


def choose_names(paths: Sequence[Path]) -> list[str]:
    """Return the folders' names, or whole paths where two have one name."""
    names = [path.name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def read_config(path: Path) -> dict[str, Any]:
    """Return the config a run was made with, empty where it cannot be read."""
    try:
        value = yaml.safe_load((path / "config.yaml").read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return {}
    return value if isinstance(value, dict) else {}
