"""``gavel prepare``: fetches and verifies what the rubrics need, and adapts a source to ``tasks.jsonl`` with a
manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from gavel.envs.judged.environment import NAME as JUDGED
from gavel.envs.plugins import find_added_rubrics
from gavel.envs.preparing import PrepareReport, prepare_tasks, write_files
from gavel.envs.registry import can_generate, describe_environment, make_environment
from gavel.envs.tasks import Targets
from gavel.judges.assets import AssetStore
from gavel.judges.rubrics.table import get_profile, make_rubric
from gavel.judges.types import Grade, JudgeFailure, JudgeQuery, Rubric
from gavel.launch.assembly.assemble import make_asset_store
from gavel.launch.assembly.generate import choose_form, choose_out_folder, generate_tasks
from gavel.launch.config.schema import PrepareConfig
from gavel.launch.rollout.session import INCOMPLETE, WHOLE
from gavel.models.errors import ConfigError
from gavel.models.failures import FailureKind


def run(config: PrepareConfig, console: Console) -> int:
    """Run the verb; see ``gavel prepare --help``. Returns the exit code."""
    profiles = _list_profiles(config)
    rubrics = _load_rubrics(config, make_asset_store(config.assets), console)
    if not (config.source.get("path") or config.source.get("dataset")):
        if can_generate(config.env):
            return generate_tasks(config, rubrics, lambda text: _print_text(console, text))
        _print_text(
            console,
            "no source is given, so no tasks are prepared, and nothing is written; for tasks: source.path=FILE out=DIR",
        )
        return 0
    out = choose_out_folder(config, lambda text: _print_text(console, text))
    if config.format == "nemo_gym" and _is_task_file(config.source):
        return _convert_tasks(config, out, console)
    report = prepare_tasks(
        _bind_source(config),
        out,
        profiles=profiles,
        warn=lambda text: _print_text(console, f"warning: {text}"),
        dry_run=config.dry_run,
        env=str(config.env.get("name")),
        form=choose_form(config),
        targets=_make_targets(config),
    )
    _show_report(report, config.dry_run, console)
    return INCOMPLETE if report.skipped else WHOLE


@dataclass(frozen=True, slots=True)
class _KnownRubrics:
    """The rubrics of bindings, for an environment that only reads targets. Implements ``Judge``."""

    rubrics: Mapping[str, Rubric]

    def rubric(self, binding: str) -> Rubric:
        if binding not in self.rubrics:
            raise ConfigError(
                "there is no such binding", field="env.rubrics", found=binding, allowed=", ".join(self.rubrics)
            )
        return self.rubrics[binding]

    async def grade(self, query: JudgeQuery) -> Grade:
        raise JudgeFailure(FailureKind.JUDGE_FAILED, f"nothing is judged here: {query.binding}")


def _make_targets(config: PrepareConfig) -> Targets | None:
    """Return what reads the targets of rows of one's own as a run would, so that a row without what the rubrics need is
    refused here; None where other rows are prepared, or no rubric of a file is bound.
    """
    bound = {name: config.rubrics[binding.rubric] for name, binding in config.judging.bindings.items()}
    if config.env.get("name") != JUDGED or not bound or any(rubric.file is None for rubric in bound.values()):
        return None
    store = make_asset_store(config.assets)
    return make_environment(
        config.env, _KnownRubrics({name: make_rubric(rubric, store) for name, rubric in bound.items()}), {}
    )


def _bind_source(config: PrepareConfig) -> Mapping[str, Any]:
    """Return the source with what judges its tasks: where it does not say, the environment does."""
    binding = config.source.get("binding") or describe_environment(config.env).binding
    return {**config.source, "binding": binding}


def _is_task_file(source: Mapping[str, Any]) -> bool:
    from gavel.envs.interfaces.nemo_gym.export import is_task_file

    path = source.get("path")
    return path is not None and is_task_file(Path(path).expanduser())


def _convert_tasks(config: PrepareConfig, out: Path, console: Console) -> int:
    """Write a task file of ours as rows of Gym's form; there is nothing else to prepare about it."""
    from gavel.envs.interfaces.nemo_gym.export import FILES, make_gym_file

    path = Path(config.source["path"]).expanduser()
    data, rows = make_gym_file(path, str(config.env.get("name")), agent=config.agent)
    name = FILES.get(path.name, FILES["tasks.jsonl"])
    if config.dry_run:
        _print_text(console, f"dry run: nothing was written; {rows} rows would go into {out / name}")
        return WHOLE
    for file in write_files(out, {name: data}):
        _print_text(console, f"wrote {file}, {rows} rows")
    return WHOLE


def _list_profiles(config: PrepareConfig) -> dict[str, str]:
    """Return the grading profile of each binding."""
    profiles = {}
    for name, binding in config.judging.bindings.items():
        if binding.rubric not in config.rubrics:
            raise ConfigError(
                "there is no such rubric",
                field=f"judging.bindings.{name}.rubric",
                found=binding.rubric,
                allowed=", ".join(config.rubrics),
            )
        profiles[name] = config.rubrics[binding.rubric].profile
    return profiles


def _load_rubrics(config: PrepareConfig, store: AssetStore, console: Console) -> dict[str, Rubric]:
    """Fetch and verify every asset of every rubric; making the rubric checks that they fit together.

    In a dry run there is none.
    """
    rubrics = {}
    added = find_added_rubrics(rubric.profile for rubric in config.rubrics.values() if rubric.file is None)
    for name, rubric in config.rubrics.items():
        field = f"rubrics.{name}.profile"
        profile = get_profile(rubric, field=field, added=added)
        if config.dry_run:
            _print_text(
                console,
                f"rubric {name}: {rubric.profile}; would fetch and verify {', '.join(profile.assets) or 'nothing'}",
            )
            continue
        made = rubrics[name] = make_rubric(rubric, store, field=field, added=added)
        _print_text(console, f"rubric {name}: {rubric.profile}, {made.digest}")
        for asset in profile.assets:
            _print_text(console, f"  {asset}: verified, {store.locate_asset(asset)}")
    return rubrics


def _show_report(report: PrepareReport, dry_run: bool, console: Console) -> None:
    _print_text(
        console,
        f"{report.rows} rows: {report.train} tasks, {report.validation} for validation, {report.skipped} skipped",
    )
    if report.domains:
        _print_text(console, "by domain: " + ", ".join(f"{domain} {count}" for domain, count in report.domains.items()))
    for how, ids in report.dropped.items():
        _print_text(console, f"dropped, {how}: {len(ids)} ({', '.join(ids[:5])}{', …' if len(ids) > 5 else ''})")
    if dry_run:
        _print_text(console, f"dry run: nothing was written; tasks.jsonl would go into {report.out}")
        return
    for file in report.files:
        _print_text(console, f"wrote {file}")


def _print_text(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
