"""``gavel rescore``: another reward policy over the stored outcomes of a run, into a child run; no model is called."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

from rich.console import Console

from gavel.envs.registry import check_reward, make_reward
from gavel.envs.types import RewardPolicy
from gavel.launch.assembly.assemble import assemble_run
from gavel.launch.assembly.qualification import read_run_standings
from gavel.launch.config.console import print_line
from gavel.launch.config.schema import RescoreConfig
from gavel.launch.config.stored import to_yaml
from gavel.launch.rollout.session import exit_code, write_report
from gavel.launch.rollout.tally import RunTally, make_closing_table
from gavel.launch.runs.accounting import list_prices
from gavel.launch.runs.child import describe_parent, find_existing_run, format_options, make_child_path, read_run_config
from gavel.launch.runs.child_name import reward_changes
from gavel.launch.runs.folder import RunFolder, read_results
from gavel.launch.runs.inputs import read_inputs
from gavel.launch.runs.manifest import RunHead, read_manifest
from gavel.launch.runs.origin import is_written_here


def run(config: RescoreConfig, console: Console) -> int:
    """Run the verb; see ``gavel rescore --help``. Returns the exit code."""
    begun = time.monotonic()
    parent = find_existing_run(config.run.dir, "rescore")
    manifest = read_manifest(parent)
    assert manifest is not None
    composed = replace(read_run_config(parent), reward=config.reward)
    check_reward(composed.env.get("name"), config.reward)
    reward = make_reward(config.reward)
    _try_reward(reward, parent)
    path = make_child_path(parent, config.into, "rescore", reward_changes(manifest.reward, config.reward))
    if config.dry_run:
        console.print(
            f"would apply reward {format_options(config.reward)} to {parent} and write {path}",
            highlight=False,
            soft_wrap=True,
        )
        return 0
    head = RunHead(
        "rescore",
        manifest.identity,
        {**manifest.digests, "parent": manifest.digests["identity"]},
        config.reward,
        reward.ablation,
        describe_parent(parent, manifest),
    )
    with RunFolder.open_folder(path, head, to_yaml(composed), ours=is_written_here(parent)) as folder:
        environment = assemble_run(composed, with_policy=True).environment
        tally = RunTally(read_inputs(parent), environment, list_prices(composed.service_table))
        _copy_rewarded(parent, folder, reward, tally)
        metrics = tally.write_metrics(folder, environment, reward)
    console.print(
        make_closing_table(
            metrics, time.monotonic() - begun, "calls of the parent (no model was called)", environment.info.clusters
        )
    )
    for standing in read_run_standings(composed, path):
        print_line(console, standing.line)
    print_line(console, write_report(path))
    print_line(
        console,
        f"run folder: {path} (child of {parent}); compare: {shlex.join(('gavel', 'compare', str(parent), str(path)))}",
    )
    return exit_code(tally.count_missing(read_inputs(path)), None, console)


def _try_reward(reward: RewardPolicy, parent: Path) -> None:
    """Reward the first outcome, so that a policy that cannot is refused before there is a folder for it.

    Raises:
        RewardError: it cannot.
    """
    for first in islice(read_results(parent), 1):
        reward.reward(first.outcome)


def _copy_rewarded(parent: Path, folder: RunFolder, reward: RewardPolicy, tally: RunTally) -> None:
    """Copy the parent's rows with new rewards; rows the child has already stay."""
    folder.write_plan(read_inputs(parent))
    for name in ("results.jsonl", "errors.jsonl"):
        known = set()
        for result in read_results(folder.path, name):
            known.add((result.task_id, result.rollout_index, result.attempt))
            tally.add_row(result)
        for result in read_results(parent, name):
            if (result.task_id, result.rollout_index, result.attempt) in known:
                continue
            scored = replace(result, reward=reward.reward(result.outcome)) if result.outcome.graded else result
            folder.add_result(scored)
            tally.add_row(scored)
