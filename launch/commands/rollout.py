"""``gavel rollout``: policy x env x judge x reward over tasks -> graded rows, metrics."""

from __future__ import annotations

import contextlib
import io
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gavel.envs.play import make_invalid
from gavel.envs.registry import find_content_note, make_reward
from gavel.envs.tasks import BadRow, PlannedTask, TaskFile, read_tasks
from gavel.envs.types import Digests, Result
from gavel.judges.bindings import add_members, check_verifiers, describe_judges, describe_output_limit
from gavel.launch.assembly.assemble import Assembly, assemble_run
from gavel.launch.assembly.estimate import describe_estimate, estimate_calls
from gavel.launch.config.console import print_line
from gavel.launch.config.schema import RolloutConfig
from gavel.launch.config.stored import to_yaml
from gavel.launch.config.task_paths import resolve_task_path
from gavel.launch.report.trackers.start import check_export
from gavel.launch.rollout.budget import check_budget
from gavel.launch.rollout.deadline import Deadline
from gavel.launch.rollout.session import (
    INCOMPLETE,
    WHOLE,
    Session,
    check_external_services,
    collect_rarely,
    compute_config_digest,
    run_async,
    run_session,
)
from gavel.launch.rollout.story import tell_story
from gavel.launch.runs.accounting import list_prices
from gavel.launch.runs.child import format_options
from gavel.launch.runs.folder import RunFolder, has_no_row, has_rewards, read_results
from gavel.launch.runs.identity import make_identity
from gavel.launch.runs.inputs import PlannedRow, read_own_messages
from gavel.launch.runs.journal import RowKey, read_journal
from gavel.launch.runs.manifest import RunHead, read_manifest
from gavel.launch.runs.shards import WHOLE as WHOLE_RUN
from gavel.launch.runs.shards import Shard, read_shard
from gavel.models.codec import compute_digest, to_plain
from gavel.models.errors import ConfigError, InputError, find_nearest
from gavel.models.service import get_config_key


def run(config: RolloutConfig, console: Console) -> int:
    """Run the verb; see ``gavel rollout --help``. Returns the exit code."""
    with collect_rarely():
        return _run_rollout(config, console)


def _run_rollout(config: RolloutConfig, console: Console) -> int:
    _check_counts(config)
    check_budget(config.budget)
    check_export(config.export)
    deadline = Deadline.make_deadline(config.deadline, config.deadline_margin)
    assembly = assemble_run(config, with_policy=True)
    make_reward(config.reward)  # refused before anything is read
    tasks = _read_tasks(config, assembly)
    whole = plan_rows(tasks.tasks, config.rollouts_per_task)
    shard = read_shard(config.shard)
    rows = _select_shard(whole, shard)
    check_verifiers(assembly.bindings, {row.task.verifier for row in rows}, assembly.environment.info.also_binds)
    if config.inspect is not None:
        if _is_skipped(config.inspect, whole, tasks.bad, console):
            return INCOMPLETE
        rows = _select_task(rows, config.inspect)
    if config.dry_run:
        console.print(_plan_table(config, assembly, tasks, rows))
        return 0
    path = Path(config.run.dir or time.strftime(f"runs/{config.env['name']}-%Y%m%d-%H%M%S"))
    with _join_judge(config, path, assembly, console) as joined:
        return _play_plan(config, console, path, _Plan(joined, tasks, whole, rows, shard, deadline))


@dataclass(frozen=True)
class _Plan:
    """What a command plays: ``rows`` of the ``whole``, until the deadline."""

    assembly: Assembly
    tasks: TaskFile
    whole: Sequence[PlannedRow]
    rows: Sequence[PlannedRow]
    shard: Shard
    deadline: Deadline | None


@contextlib.contextmanager
def _join_judge(config: RolloutConfig, path: Path, assembly: Assembly, console: Console) -> Iterator[Assembly]:
    """Yield the assembly with the managed judges where another job serves them, where that is wanted."""
    if config.judge_folder is None:
        yield assembly
        return
    from gavel.launch.training.judge.join import join_judge

    folder, mine = Path(config.judge_folder).expanduser().absolute(), config.service_table
    served = {name: mine[name] for name in assembly.services if mine[name].mode == "managed" and name != "policy"}
    with join_judge(folder, path.absolute(), served, lambda line: print_line(console, line)) as joined:
        yield replace(assembly, services={**assembly.services, **joined})


def _play_plan(config: RolloutConfig, console: Console, path: Path, plan: _Plan) -> int:
    """Open the run's folder and play the plan's rows; return the exit code."""
    assembly, rows, shard = plan.assembly, plan.rows, plan.shard
    config, kept = _with_own_reward(path, config)
    _print_kept(kept, console)
    text = to_yaml(replace(config, retry=None, inspect=None, show_sensitive=False, trust=None, judge_folder=None))
    identity = make_identity(config.env, config.policy, config.services, assembly.bindings)
    config_digest = compute_config_digest(text)
    digests = {
        "config": config_digest,
        "tasks": compute_digest([row.task_digest for row in plan.whole]),
        "rubrics": assembly.rubric_digests,
    }
    reward = make_reward(config.reward)
    head = RunHead(
        "rollout", identity, digests, config.reward, reward.ablation, shard=None if shard == WHOLE_RUN else str(shard)
    )
    silent: list[str] = []
    new = has_no_row(path)  # then a wrong name or URL must leave no folder that holds it
    if new and (code := run_async(lambda: check_external_services(assembly.services, silent.append), console)) != WHOLE:
        return code
    trusted = config.trust is not False
    with RunFolder.open_folder(path, head, text, ours=trusted) as folder:
        folder.write_plan(rows)
        for line in silent:
            print_line(console, line, style="bold")
        if config.inspect is None:
            bad = shard.select_bad(plan.tasks.bad)
            _store_bad(folder, bad, config_digest)
            _tell_bad(bad, console)
        session = Session(
            assembly,
            reward,
            config.failure,
            rows,
            config.concurrency,
            config.policy.sampling,
            config_digest,
            assets=config.assets,
            budget=config.budget,
            certificates=Path(config.certificates).expanduser(),
            report=config.report,
            deadline=plan.deadline,
            export=config.export,
            looked=new,
            persistent=config.retry is not None,
            untrusted=frozenset(() if trusted else config.service_table),
            prices=list_prices(config.service_table),
            planned=rows if new else (),
        )
        if config.inspect is None:
            code = run_async(lambda: run_session(session, folder, console), console)
            code = _print_next_steps(path, rows, code, console)
            _print_kept(kept, console)
            return code
        fresh = replace(session, rows=[row for row in rows if not _is_attempted(path, row)], report=False, export=None)
        quiet = Console(file=io.StringIO())
        code = run_async(lambda: run_session(fresh, folder, quiet), console) if fresh.rows else 0
        note = None if config.show_sensitive else find_content_note(config.env)
        return max(code, _inspect_rows(path, rows, assembly, console, note))


def _is_attempted(path: Path, row: PlannedRow) -> bool:
    """Whether an attempt at the row is stored: looking at it must not cost another."""
    found = (result for name in ("results.jsonl", "errors.jsonl") for result in read_results(path, name))
    return any((result.task_id, result.rollout_index) == row.key for result in found)


def _print_next_steps(path: Path, rows: Sequence[PlannedRow], code: int, console: Console) -> int:
    if code in (WHOLE, INCOMPLETE):
        words = ("gavel", "rollout", str(path), f"inspect={rows[0].task.task_id}")
        print_line(console, f"one row's whole story: {shlex.join(words)}")
    return code


def _check_counts(config: RolloutConfig) -> None:
    if config.retry not in (None, "given_up"):
        raise ConfigError("there is no such choice", field="retry", found=config.retry, allowed="given_up")
    for key in ("rollouts_per_task", "concurrency"):
        if getattr(config, key) < 1:
            raise ConfigError("must be at least 1", field=key, found=str(getattr(config, key)))
    if config.tasks.limit is not None and config.tasks.limit < 1:
        raise ConfigError("must be at least 1", field="tasks.limit", found=str(config.tasks.limit))


def _read_tasks(config: RolloutConfig, assembly: Assembly) -> TaskFile:
    if not config.tasks.path:
        raise ConfigError(
            "no tasks are named",
            field="tasks.path",
            allowed="a tasks.jsonl, or a source file of the environment",
            remedy=f"did you mean tasks.path={config.run.dir}?"
            if config.run.dir and Path(config.run.dir).expanduser().is_file()
            else "set tasks.path=…, or try experiment=demo",
        )
    tasks = read_tasks(resolve_task_path(config.tasks.path), assembly.environment, limit=config.tasks.limit)
    if not tasks.tasks:
        first = tasks.bad[0].error
        raise InputError(
            f"no row of this file is a valid task ({len(tasks.bad)} are not); the first:\n{first}",
            where=str(tasks.path),
            remedy=""
            if config.env["name"] == "judged"
            else f"these are rows for env={config.env['name']}; others, with a prompt of your own: `gavel new rubric "
            "NAME`, then rubrics.NAME.file=…",
        )
    return tasks


def plan_rows(tasks: Sequence[PlannedTask], rollouts_per_task: int) -> list[PlannedRow]:
    """Return every (task, rollout) in order, by the task's place in the file and the rollout's number.

    Skipped rows keep their places, so that mending one later moves no other.
    """
    return [
        PlannedRow(task.line - 1, rollout, task.task, task_digest)
        for task in tasks
        for task_digest in [task.task.digest]
        for rollout in range(rollouts_per_task)
    ]


def _select_shard(rows: list[PlannedRow], shard: Shard) -> list[PlannedRow]:
    part = shard.select_rows(rows)
    if not part:
        tasks = len({row.task_index for row in rows})
        raise ConfigError(
            "no task falls to this shard",
            field="shard",
            found=str(shard),
            allowed=f"at most as many shards as tasks, {tasks}",
        )
    return part


def _is_skipped(task_id: str, rows: Sequence[PlannedRow], bad: Sequence[BadRow], console: Console) -> bool:
    """Whether this is a task that was skipped; says why."""
    found = next((row for row in bad if row.task_id == task_id), None)
    if found is None or any(row.task.task_id == task_id for row in rows):
        return False
    print_line(console, f"task {task_id} was skipped, no model is asked about it: {found.error}")
    return True


def _select_task(rows: list[PlannedRow], task_id: str) -> list[PlannedRow]:
    chosen = [row for row in rows if row.task.task_id == task_id]
    if not chosen:
        ids = dict.fromkeys(row.task.task_id for row in rows)
        near = find_nearest(task_id, ids)
        raise ConfigError(
            "there is no such task",
            field="inspect",
            found=task_id,
            allowed=f"one of {len(ids)} ids, such as {', '.join(list(ids)[:3])}",
            remedy=f"did you mean {near[0]}?" if near else "",
        )
    return chosen


def _with_own_reward(path: Path, config: RolloutConfig) -> tuple[RolloutConfig, str | None]:
    """Return the config with the reward policy the run's rows have, so that all of them can be compared; and what to
    say of it.
    """
    manifest = read_manifest(path)
    if (
        manifest is None
        or manifest.kind != "rollout"
        or manifest.reward == to_plain(dict(config.reward))
        or not has_rewards(path)
    ):
        return config, None
    options = [f"reward.{key}={value}" for key, value in config.reward.items() if key != "name"]
    command = shlex.join(["gavel", "rescore", str(path), f"reward={config.reward.get('name')}", *options])
    kept = (
        f"this run was made with reward {format_options(manifest.reward)} and keeps it, so that its rows can be "
        f"compared;\n"
        f"for the other one: {command}"
    )
    return replace(config, reward=manifest.reward), kept


def _print_kept(kept: str | None, console: Console) -> None:
    """Say it before the first row, and again at the end, where it is not lost above the figures."""
    if kept is not None:
        print_line(console, kept, style="bold")


_TOLD = 5
"""Skipped rows that are shown; all of them stand in ``errors.jsonl``."""


def _tell_bad(bad: Sequence[BadRow], console: Console) -> None:
    for row in bad[:_TOLD]:
        print_line(console, f"skipped: {row.error}")
    if bad[_TOLD:]:
        print_line(console, f"and {len(bad) - _TOLD} more skipped rows; errors.jsonl names them all")


def _store_bad(folder: RunFolder, bad: Sequence[BadRow], config_digest: str) -> None:
    """Store skipped tasks before any model is asked; each once, however often the run is resumed."""
    known = {result.task_id for result in read_results(folder.path, "errors.jsonl") if result.status == "invalid_task"}
    for row in bad:
        if row.task_id not in known:
            folder.add_result(
                make_invalid(row.error, row.task_id, Digests(config_digest, {}), metadata={"line": row.line})
            )


def _plan_table(config: RolloutConfig, assembly: Assembly, tasks: TaskFile, rows: Sequence[PlannedRow]) -> Table:
    table = Table(
        "what", "how", title="dry run: nothing is started, asked or written", title_justify="left", show_edge=False
    )
    table.add_row("tasks", Text(f"{len(tasks.tasks)} good, {len(tasks.bad)} skipped, from {tasks.path}"))
    for bad in tasks.bad[:5]:
        table.add_row("", Text(str(bad.error)))
    part = f" of shard {config.shard}" if config.shard else ""
    table.add_row("rows", f"{len(rows)} ({config.rollouts_per_task} a task){part}, {config.concurrency} at once")
    if config.deadline is not None:
        table.add_row("deadline", Text(f"{config.deadline} after the start"))
    for name, service in assembly.services.items():
        where = ", ".join(service.base_urls) if service.mode == "external" else "served by us"
        table.add_row(f"service {get_config_key(name)}", Text(f"{service.model} ({where})"))
    for name, binding in assembly.bindings.items():
        table.add_row(
            f"binding {name}",
            Text(f"{describe_judges(binding)} grades with {binding.rubric.profile}, {binding.rubric.digest[:19]}…"),
        )
        table.add_row("", Text(describe_output_limit(binding)))
    table.add_row("reward", Text(format_options(config.reward)))
    limits = [f"at most {value} {key[4:]}" for key, value in to_plain(config.budget).items() if value is not None]
    table.add_row("budget", ", ".join(limits) or "none")
    table.add_row(
        "model calls", f"one of the policy for each reply to {len(rows)} rows; the judge's depend on the replies"
    )
    for what, how in describe_estimate(estimate_calls(rows, assembly), config.service_table):
        table.add_row(what, Text(how))
    table.add_row("run folder", Text(config.run.dir or "runs/<env>-<time>"))
    return table


def _inspect_rows(
    path: Path, rows: Sequence[PlannedRow], assembly: Assembly, console: Console, note: str | None
) -> int:
    """Print the newest attempt at each row, and a line for each earlier one; return 3 if one has no grade. With a
    content note, transcripts stay folded."""
    states = read_journal(path / "transcripts.jsonl", read_own_messages(rows))
    attempts: dict[RowKey, list[Result]] = {row.key: [] for row in rows}
    for name in ("errors.jsonl", "results.jsonl"):
        for result in read_results(path, name):
            attempts.get((result.task_id, result.rollout_index), []).append(result)
    for key, (*earlier, newest) in ((key, found) for key, found in attempts.items() if found):
        for result in earlier:
            failure = result.outcome.failure
            reason = f"{failure.kind}: {failure.reason}" if failure else result.outcome.label
            print_line(console, f"attempt {result.attempt} at {key[0]}, rollout {key[1]}: {reason}")
        console.print(
            tell_story(
                newest, states[key].answers.values() if key in states else (), add_members(assembly.bindings), note
            ),
            soft_wrap=False,
        )
    return WHOLE if all(found and found[-1].outcome.graded for found in attempts.values()) else INCOMPLETE
