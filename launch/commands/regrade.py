"""``gavel regrade``: grade stored transcripts again; the policy is never asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from gavel.envs.episode import EpisodeState
from gavel.envs.registry import check_reward, make_reward
from gavel.envs.types import Environment
from gavel.judges.bindings import add_members, describe_output_limit
from gavel.launch.assembly.assemble import Assembly, assemble_run
from gavel.launch.config.schema import RegradeConfig, RolloutConfig
from gavel.launch.config.stored import to_yaml
from gavel.launch.rollout.budget import check_budget
from gavel.launch.rollout.deadline import Deadline
from gavel.launch.rollout.session import Session, compute_config_digest, run_async, run_session
from gavel.launch.runs.accounting import list_prices
from gavel.launch.runs.child import describe_parent, find_existing_run, make_child_path, read_run_config
from gavel.launch.runs.child_name import describe_grading_changes
from gavel.launch.runs.folder import RunFolder
from gavel.launch.runs.identity import make_identity
from gavel.launch.runs.inputs import PlannedRow, read_inputs, read_own_messages
from gavel.launch.runs.journal import RowKey, read_journal
from gavel.launch.runs.kept_answers import find_kept_members, keep_answers, rename_answers
from gavel.launch.runs.manifest import RunHead, read_manifest
from gavel.launch.runs.origin import is_written_here
from gavel.models.errors import ConfigError

_ONLY = ("ungraded", "all")


def run(config: RegradeConfig, console: Console) -> int:
    """Run the verb; see ``gavel regrade --help``. Returns the exit code."""
    if config.only not in _ONLY:
        raise ConfigError("there is no such choice", field="only", found=config.only, allowed=", ".join(_ONLY))
    if config.only == "ungraded" and config.into:
        raise ConfigError(
            "only=ungraded completes the run itself",
            field="into",
            found=config.into,
            remedy="remove into=…, or set only=all",
        )
    check_budget(config.budget)
    deadline = Deadline.make_deadline(config.deadline, config.deadline_margin)
    parent = find_existing_run(config.run.dir, "regrade")
    composed = _compose_child(config, parent)
    check_reward(composed.env.get("name"), _read_kept_reward(parent))
    assembly = assemble_run(composed, with_policy=False, grading_only=True)
    rows = [_parse_row(row, assembly.environment) for row in read_inputs(parent)]
    graders = _list_graders(composed)
    changed = describe_grading_changes(_list_graders(read_run_config(parent)), graders)
    path = parent if config.only == "ungraded" else make_child_path(parent, config.into, "regrade", changed)
    if config.dry_run:
        judges = "; ".join(f"{name}: {model} with {profile}" for name, (model, profile) in graders.items())
        console.print(
            f"would grade the {config.only} rows of {parent} into {path} ({judges})", soft_wrap=True, highlight=False
        )
        for name, binding in assembly.bindings.items():
            console.print(f"binding {name}: {describe_output_limit(binding)}", soft_wrap=True, highlight=False)
        return 0
    return _regrade_rows(config, composed, assembly, rows, parent, path, console, deadline)


def _read_kept_reward(parent: Path) -> Mapping[str, Any]:
    """Return the options of the reward policy that a run was made with."""
    manifest = read_manifest(parent)
    assert manifest is not None
    return manifest.reward


def _compose_child(config: RegradeConfig, parent: Path) -> RolloutConfig:
    own = read_run_config(parent)
    return replace(
        own,
        judge=config.judge or own.judge,
        rubrics=config.rubrics or own.rubrics,
        services=own.services if config.services is None else config.services,
        judging=config.judging or own.judging,
    )


def _list_graders(composed: RolloutConfig) -> dict[str, tuple[str, str]]:
    """Return by binding the judge's model, or those of a panel, and the rubric's profile."""
    table = composed.service_table
    return {
        name: (", ".join(str(table[judge].model) for judge in binding.judges), composed.rubrics[binding.rubric].profile)
        for name, binding in composed.judging.bindings.items()
    }


def _parse_row(row: PlannedRow, environment: Environment) -> PlannedRow:
    return replace(row, task=replace(row.task, target=environment.parse_target(row.task.target)))


def _regrade_rows(
    config: RegradeConfig,
    composed: RolloutConfig,
    assembly: Assembly,
    rows: list[PlannedRow],
    parent: Path,
    path: Path,
    console: Console,
    deadline: Deadline | None,
) -> int:
    manifest = read_manifest(parent)
    assert manifest is not None
    text = to_yaml(composed)
    itself = path == parent
    head = RunHead(
        manifest.kind if itself else "regrade",
        make_identity(composed.env, composed.policy, composed.services, assembly.bindings),
        {"config": compute_config_digest(text), "tasks": manifest.digests["tasks"], "rubrics": assembly.rubric_digests},
        manifest.reward,
        manifest.ablation,
        manifest.parent if itself else describe_parent(parent, manifest),
        manifest.shard if itself else None,
    )
    trusted = bool(config.trust) or is_written_here(parent)
    stored = {} if trusted else read_run_config(parent).service_table
    theirs = frozenset(name for name, service in composed.service_table.items() if stored.get(name) == service)
    with RunFolder.open_folder(path, head, text, "regrade", ours=trusted) as folder:
        folder.write_plan(rows)
        kept = {} if itself else find_kept_members(manifest, head.identity)
        states = {} if itself else _read_transcripts(parent, rows, assembly, kept)
        keep_answers(folder, states, kept.values())
        session = Session(
            assembly,
            make_reward(folder.manifest.reward),
            composed.failure,
            rows,
            config.concurrency,
            None,
            compute_config_digest(text),
            assets=composed.assets,
            budget=config.budget,
            states=states,
            persistent=itself,
            parent=None if itself else parent,
            deadline=deadline,
            certificates=Path(composed.certificates).expanduser(),
            untrusted=theirs,
            prices=list_prices(composed.service_table),
        )
        return run_async(lambda: run_session(session, folder, console), console)


def _read_transcripts(
    parent: Path, rows: list[PlannedRow], assembly: Assembly, kept: Mapping[str, str]
) -> dict[RowKey, EpisodeState]:
    """Return the parent's transcripts without its judge's answers, which are asked for again, except those of members
    that are ``kept``; what a simulator said stays.
    """
    states = read_journal(parent / "transcripts.jsonl", read_own_messages(rows))
    judged = frozenset(add_members(assembly.bindings)) | frozenset(kept)
    return {
        key: replace(
            state,
            answers={name: answer for name, answer in state.answers.items() if answer.binding not in judged}
            | rename_answers(state.answers.values(), kept),
        )
        for key, state in states.items()
    }
