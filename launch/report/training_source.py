"""What ``gavel view`` reads of a training run: every sample of its ledgers, and which step used which, while both
grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gavel.envs.interfaces.nemo_rl.ledger import read_start
from gavel.judges.bindings import Binding
from gavel.launch.assembly.qualification import Standing, read_run_standings
from gavel.launch.comparing.ledgers import LEDGER
from gavel.launch.comparing.runs import read_config
from gavel.launch.comparing.trait_changes import read_trait_changes
from gavel.launch.config.schema import TrainConfig
from gavel.launch.config.stored import from_yaml
from gavel.launch.report.entry import ReportEntry, make_entry
from gavel.launch.report.source import Tail, bind_offline, check_row, read_line
from gavel.launch.runs.child import format_options
from gavel.models.codec import record
from gavel.models.errors import GavelError
from gavel.models.files import parse_line

_ROWS, _ANSWERS, _STEPS = ".rows.jsonl", ".answers.jsonl", "steps.jsonl"


@record
class StepGroup:
    """The samples of one task in one step, ``task`` being its id, behind its environment's name where a training
    has several: ``rows`` are numbers of entries, ``weights`` their weights in the loss, in
    the same order; ``cut`` counts samples that the step used and of which no row is stored."""

    task: str
    rows: tuple[int, ...]
    weights: tuple[float, ...]
    cut: int = 0


@record
class TrainingStep:
    """One step of one split (``train`` or ``validation``) and its groups, in the order in which their first samples
    ended.
    """

    step: int
    split: str
    groups: tuple[StepGroup, ...]


@dataclass(slots=True)
class TrainingSource:
    """A training run as a report sees it; the same attributes as ``RunSource``, and its steps.

    ``entries`` has one entry per sample, in the order in which they ended; ``planned`` counts the samples that steps
    have used.
    """

    path: Path
    options: Mapping[str, Any]
    config: TrainConfig | None
    entries: list[ReportEntry] = field(default_factory=list)
    version: int = 0
    planned: int = 0
    altered: int = 0
    _steps: dict[tuple[str, int], dict[str, float]] = field(default_factory=dict)
    _starts: dict[str, str] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _uids: list[str] = field(default_factory=list)
    _step_of: dict[str, tuple[str, int]] = field(default_factory=dict)
    _answers: dict[str, list[tuple[Path, int]]] = field(default_factory=dict)
    _tails: dict[Path, Tail] = field(default_factory=dict)

    @classmethod
    def open_training(cls, path: Path) -> TrainingSource:
        """Open the training run at ``path``; nothing is read before ``refresh``."""
        return cls(path, read_config(path), _read_config(path))

    @property
    def env(self) -> str:
        """The environment's name."""
        return str(self.env_options.get("name", ""))

    @property
    def env_options(self) -> Mapping[str, Any]:
        """The environment's options."""
        return dict(self.options.get("env") or {})

    @property
    def reward(self) -> Mapping[str, Any]:
        """The reward policy's options."""
        return dict(self.options.get("reward") or {})

    def read_metrics(self) -> tuple[Mapping[str, Any], bool]:
        """Return nothing: a training stores no figures of its environment."""
        return {}, False

    def read_facts(self) -> dict[str, str]:
        """Return what the run is made of, in words."""
        trainer = self.options.get("trainer") or {}
        facts = {
            "environment": self.env,
            "policy": str(trainer.get("model") or ""),
            "reward": format_options(self.reward),
            "trainer": str(trainer.get("kind") or ""),
            "seed": str(self.options.get("seed") or ""),
        }
        if self.config is not None:
            facts |= {
                f"judge ({name})": ", ".join(binding.judges) for name, binding in self.config.judging.bindings.items()
            }
            facts |= {f"rubric {name}": rubric.profile for name, rubric in self.config.rubrics.items()}
        facts["watch"] = "; ".join(change.describe() for change in read_trait_changes(self.path))
        return {name: value for name, value in facts.items() if value}

    def read_standings(self) -> tuple[Standing, ...]:
        """Return what is known of the judges; nothing where another version wrote the config."""
        return read_run_standings(self.config, self.path) if self.config is not None else ()

    def read_bindings(self) -> Mapping[str, Binding]:
        """Return the run's bindings, without touching a network."""
        return bind_offline(self.config, with_policy=False)

    def refresh(self) -> bool:
        """Read what was appended; return whether there was anything.

        Raises:
            RecordError: a damaged line; names file and line's place.
        """
        before, folder = (self.version, self.planned), self.path / LEDGER
        for path in sorted(folder.glob(f"*{_ROWS}")):
            for offset, line in self._get_tail(path).read_lines():
                self._take_row(path, offset, line)
        for path in sorted(folder.glob(f"*{_ANSWERS}")):
            for offset, line in self._get_tail(path).read_lines():
                answer = parse_line(line, f"{path} at byte {offset}")[0]
                self._answers.setdefault(str(answer.get("uid")), []).append((path, offset))
        for offset, line in self._get_tail(folder / _STEPS).read_lines():
            where = f"{folder / _STEPS} at byte {offset}"
            row = parse_line(line, where)[0]
            with check_row(where):
                weight = float(row["weight"])
                self._take_step(row["uid"], row["split"], int(row["step"]), weight, read_start(row))
        self.planned = len(self._step_of)
        return (self.version, self.planned) != before

    def list_steps(self) -> tuple[TrainingStep, ...]:
        """Return the steps in order, a step's training before its validation."""
        ordered = sorted(self._steps.items(), key=lambda item: item[0][::-1])
        return tuple(TrainingStep(step, split, self._make_groups(weights)) for (split, step), weights in ordered)

    def read_row(self, place: tuple[str, int]) -> dict[str, Any]:
        """Return the result that stands at a place."""
        found: dict[str, Any] = read_line(self.path / place[0], place[1])["result"]
        return found

    def read_task(self, task_id: str) -> Mapping[str, Any]:
        """Return nothing: a ledger stores results, not tasks."""
        del task_id
        return {}

    def read_answers(self, entry: ReportEntry) -> list[dict[str, Any]]:
        """Return the answered judge questions of a sample that are still stored: a trainer drops old ones."""
        found: dict[str, dict[str, Any]] = {}
        for path, offset in self._answers.get(self._uids[entry.number], ()):
            line = read_line(path, offset)
            if line.get("uid") == self._uids[entry.number]:  # else the file was begun anew since
                found[line["answer"]["key"]] = line["answer"]
        return list(found.values())

    def list_attempts(self, entry: ReportEntry) -> list[tuple[str, int]]:
        """Return where the attempts at a sample stand: there is one."""
        return [entry.place]

    def _get_tail(self, path: Path) -> Tail:
        tail = self._tails.setdefault(path, Tail(path))
        if tail.is_renewed() and path.name.endswith(_ANSWERS):
            self._answers.clear()
        return tail

    def _take_row(self, path: Path, offset: int, line: bytes) -> None:
        where = f"{path} at byte {offset}"
        row = parse_line(line, where)[0]
        with check_row(where):
            uid = str(row["uid"])
            if uid in self._numbers:
                return  # the first ending of a sample stands
            self.version += 1
            number = self._numbers[uid] = len(self.entries)
            self._uids.append(uid)
            self.entries.append(
                make_entry(number, self.version, row["result"], (str(path.relative_to(self.path)), offset))
            )

    def _take_step(self, uid: str, split: str, step: int, weight: float, start: str) -> None:
        """Count a sample to a step. A new start of the trainer takes the place of what an earlier one recorded from
        that step on."""
        self.version += 1
        if self._starts.get(split, start) != start:
            for key in [key for key in self._steps if key[0] == split and key[1] >= step]:
                for old in self._steps.pop(key):
                    self._step_of.pop(old, None)
        self._starts[split] = start
        self._steps.setdefault((split, step), {})[uid] = weight
        self._step_of[uid] = (split, step)

    def _make_groups(self, weights: Mapping[str, float]) -> tuple[StepGroup, ...]:
        groups: dict[tuple[str, str, str], list[tuple[int, int, float]]] = {}
        for uid, weight in weights.items():
            number = self._numbers.get(uid)
            if number is not None:
                entry = self.entries[number]
                # Two environments may have one task, each with a reward of its own.
                key = (entry.place[0], entry.task_id, entry.task_digest)
                groups.setdefault(key, []).append((entry.rollout_index, number, weight))
        several = sum(path.name.endswith(_ROWS) for path in self._tails) > 1
        made = [
            StepGroup(
                f"{Path(file).name.removesuffix(_ROWS)}: {task}" if several else task,
                tuple(number for _, number, _ in rows),
                tuple(weight for *_, weight in rows),
            )
            for (file, task, _), rows in ((key, sorted(rows)) for key, rows in groups.items())
        ]
        cut = sum(uid not in self._numbers for uid in weights)
        return (*made, StepGroup("", (), (), cut)) if cut else tuple(made)


def _read_config(path: Path) -> TrainConfig | None:
    try:
        return from_yaml(
            TrainConfig, (path / "config.yaml").read_text(encoding="utf-8"), where=str(path / "config.yaml")
        )
    except (GavelError, OSError):
        return None
