"""A prepared folder with its tasks also as rows of Gym's form: ``nemo_gym.jsonl`` beside ``tasks.jsonl``, and so for
validation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from gavel.envs.interfaces.nemo_gym.rows import make_gym_row
from gavel.envs.interfaces.nemo_gym.shapes import find_shape
from gavel.envs.preparing import PrepareError
from gavel.envs.rows import read_rows
from gavel.envs.tasks import read_tasks
from gavel.envs.types import EnvironmentInfo, Task
from gavel.models.codec import load

FILES: Mapping[str, str] = {"tasks.jsonl": "nemo_gym.jsonl", "validation.jsonl": "nemo_gym_validation.jsonl"}
"""What is written for a file of tasks."""
_MANIFEST = "manifest.json"


def with_gym_rows(files: Mapping[str, bytes], *, agent: str | None = None) -> dict[str, bytes]:
    """Return a prepared folder's files with those of Gym's form, noted in the manifest, which stays the last.

    Args:
        files: by name; the tasks are read from them.
        agent: as in ``make_gym_row``.
    """
    rows = {gym: b"".join(_write_rows(files[own], agent)) for own, gym in FILES.items() if own in files}
    made = {name: data for name, data in files.items() if name != _MANIFEST} | rows
    if _MANIFEST not in files:
        return made
    manifest = orjson.loads(files[_MANIFEST])
    noted = {
        name: {"sha256": f"sha256:{hashlib.sha256(data).hexdigest()}", "rows": data.count(b"\n")}
        for name, data in rows.items()
    }
    manifest["files"] = {**manifest.get("files", {}), **noted}
    return {**made, _MANIFEST: orjson.dumps(manifest, option=orjson.OPT_INDENT_2) + b"\n"}


@dataclass(frozen=True, slots=True)
class _Targets:
    """What reading a task file needs of an environment that is not made."""

    name: str

    @property
    def info(self) -> EnvironmentInfo:
        """What reading the tasks needs; whether somebody must have asked something is the environment's own affair."""
        return EnvironmentInfo(speaks_first=True)

    def parse_target(self, raw: Mapping[str, Any]) -> Any:
        return find_shape(self.name).parse(raw)


def is_task_file(path: str | Path) -> bool:
    """Tell whether a file's first readable row is a task of ours.

    Raises:
        InputError: there is no such file, or it cannot be read.
    """
    first = next((line.row for line in read_rows(Path(path)) if line.error is None), {})
    return first.get("schema") == Task.SCHEMA


def make_gym_file(path: str | Path, env: str, *, agent: str | None = None) -> tuple[bytes, int]:
    """Return a task file of ours as rows of Gym's form, and how many there are.

    Raises:
        PrepareError: bad rows.
        InputError: the file cannot be read.
    """
    read = read_tasks(path, _Targets(env))
    if read.bad:
        raise PrepareError(Path(path), read.bad)
    return b"".join(orjson.dumps(make_gym_row(planned.task, agent)) + b"\n" for planned in read.tasks), len(read.tasks)


def _write_rows(tasks: bytes, agent: str | None) -> Iterator[bytes]:
    for line in tasks.splitlines():
        yield orjson.dumps(make_gym_row(_parse_task(orjson.loads(line)), agent)) + b"\n"


def _parse_task(raw: Mapping[str, Any]) -> Task:
    return find_shape(str(raw["env"])).parse_task(load(Task, raw))
