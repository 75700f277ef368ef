"""The config a run was made with, as the base for a command that names the run and says nothing else about a part."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from gavel.launch.runs.existing import find_existing_run
from gavel.launch.runs.origin import is_written_here

ANEW: dict[str, Any] = {"retry": None, "inspect": None, "show_sensitive": False, "dry_run": False}
"""What a stored config does not decide about the next command."""


def check_begun(run: str, chosen: bool, tasks: object, keys: Iterable[str]) -> None:
    """Refuse to roll out in a folder without a run where the command does not say what a new run would be.

    Args:
        run: the run's folder, as it was written.
        chosen: whether the command chooses any group.
        tasks: the config's ``tasks.path`` without the command's own.
        keys: the keys set on the command line.

    Raises:
        RunFolderError: there is no run; names the nearest.
    """
    new = chosen or tasks is not None or any(key == "tasks.path" or key.startswith("policy.") for key in keys)
    if not new and not (Path(run).expanduser() / "config.yaml").is_file():
        find_existing_run(run, "rollout")


_GRADING = ("judge", "rubrics", "services", "judging")
"""Sections of a run's config that a regrade may change."""


def read_own_sections(verb: str, run: str, groups: Iterable[str], keys: Iterable[str]) -> dict[str, Any]:
    """Return the sections that a verb takes from the run it works on.

    ``rollout`` goes on with a run that is named alone: without any choice of a group, everything is the run's own.
    ``regrade`` keeps what the run is graded with (``_GRADING``) under the keys that the command sets, unless it chooses
    a judge.

    Args:
        verb: the verb.
        run: the run's folder, as it was written.
        groups: the groups chosen on the command line.
        keys: the keys set on the command line.
    """
    file, chosen = Path(run).expanduser() / "config.yaml", set(groups)
    if verb not in ("rollout", "regrade") or not file.is_file():
        return {}
    own = yaml.safe_load(file.read_text(encoding="utf-8"))
    if not isinstance(own, dict):
        return {}
    if verb == "rollout":
        return {} if chosen else {**own, **ANEW, "trust": is_written_here(file.parent)}
    touched = {key.partition(".")[0] for key in keys}
    return {name: own[name] for name in _GRADING if name in touched and name in own and name not in chosen}
