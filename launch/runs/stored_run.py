"""A finished or growing run as plain values, for analysis: ``gavel.load_run``."""

from __future__ import annotations

import importlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gavel.envs.registry import find_reward
from gavel.envs.types import Check, Result
from gavel.launch.runs.existing import find_existing_run
from gavel.launch.runs.folder import list_last_attempts, read_results
from gavel.launch.runs.inputs import read_inputs
from gavel.launch.runs.manifest import Manifest, read_manifest
from gavel.models.errors import InputError


@dataclass(frozen=True, slots=True)
class StoredRun:
    """What a run folder holds.

    Attributes:
        path: the folder.
        manifest: what the run is of and what made it.
        rows: one result for each row that was tried, in the order of the plan: its grade, or else its newest failed
            attempt; tasks that could not be read come last.
        planned: how many rows there are to be; fewer ``rows`` than that: it is not finished.
    """

    path: Path
    manifest: Manifest
    rows: tuple[Result, ...]
    planned: int

    @property
    def graded(self) -> tuple[Result, ...]:
        """The rows with a grade and a reward."""
        return tuple(row for row in self.rows if row.status == "graded")

    @property
    def failed(self) -> tuple[Result, ...]:
        """The rows without: ungraded ones and invalid tasks. They belong into no mean."""
        return tuple(row for row in self.rows if row.status != "graded")

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame`` with a line for each row; see ``flatten_result``.

        Raises:
            InputError: pandas is not installed.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise InputError("a data frame needs pandas, which is not installed", remedy="pip install pandas") from None
        return pandas.DataFrame([flatten_result(row) for row in self.rows])


def load_run(path: str | Path) -> StoredRun:
    """Read the run in a folder, also while it grows.

    Raises:
        RunFolderError: there is no run there; names the nearest.
        RecordError: a line is damaged, or a row's task, place or reward is not as it was written; names file, line and
            field.
    """
    folder = find_existing_run(str(path), "report")
    manifest = read_manifest(folder)
    assert manifest is not None, "existing_run has seen it"
    reward, planned = find_reward(manifest.reward), {row.key: row.task_digest for row in read_inputs(folder)}
    errors = read_results(folder, "errors.jsonl", reward, planned)
    graded = read_results(folder, "results.jsonl", reward, planned)
    newest = {**list_last_attempts(list(errors)), **{(row.task_id, row.rollout_index): row for row in graded}}
    rows = [newest[key] for key in planned if key in newest]
    rows += [row for key, row in newest.items() if key not in planned]
    return StoredRun(folder, manifest, tuple(rows), len(planned))


def flatten_result(result: Result) -> dict[str, Any]:
    """Return a result as one flat line of a table.

    Columns: ``task_id``, ``rollout_index``, ``attempt``, ``status``, ``label``, ``reward`` (None without a grade),
    ``reward.NAME`` for each component, ``check.NAME`` (True, False, or None where it could not be checked; one that
    comes again is ``NAME#2``), ``failure_kind``, ``failure_stage``, ``failure_reason``, ``prompt`` and ``reply`` (the
    first and the last words of the episode), ``finish_reason``, ``turns`` (replies of the policy), ``seconds``, and
    ``slice.NAME`` for the fields by which figures are sliced.
    """
    outcome, failure, replies = result.outcome, result.outcome.failure, result.transcript.replies
    asked = next((message.content for message in result.transcript.messages if message.role == "user"), None)
    last = replies[-1] if replies else None
    slices = result.metadata.get("slices") or {}
    return {
        "task_id": result.task_id,
        "rollout_index": result.rollout_index,
        "attempt": result.attempt,
        "status": result.status,
        "label": outcome.label or None,
        "reward": result.reward.value if result.reward is not None else None,
        **{
            f"reward.{name}": value
            for name, value in (result.reward.components if result.reward is not None else {}).items()
        },
        **_name_checks(outcome.checks),
        "failure_kind": str(failure.kind) if failure is not None else None,
        "failure_stage": failure.stage if failure is not None else None,
        "failure_reason": failure.reason if failure is not None else None,
        "prompt": asked,
        "reply": last.content if last is not None else None,
        "finish_reason": last.reply.finish_reason if last is not None and last.reply is not None else None,
        "turns": len(replies),
        "seconds": result.timing.total_s,
        **{f"slice.{name}": value for name, value in slices.items()},
    }


def _name_checks(checks: tuple[Check, ...]) -> dict[str, bool | None]:
    seen: Counter[str] = Counter()
    named: dict[str, bool | None] = {}
    for check in checks:
        seen[check.name] += 1
        number = seen[check.name]
        named[f"check.{check.name}" + (f"#{number}" if number > 1 else "")] = check.passed
    return named
