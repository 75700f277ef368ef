"""``gavel verify RUN``: whether a run folder says what was written into it; nothing is changed and no model is called.

Questions to each stored row: is each line the one that was written (its digest), does the row stand where it belongs
and once, is its task the planned one, is the reward what the run's policy gives the stored outcome, and is the outcome
what the environment makes of the stored transcript and the judge's stored replies? This shows accidents and careless
edits. It is no signature: who can write the folder can write digests, too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from gavel.envs.registry import make_reward
from gavel.envs.types import Result, RewardPolicy
from gavel.launch.assembly.assemble import Assembly, assemble_run
from gavel.launch.config.console import print_line
from gavel.launch.config.schema import VerifyConfig
from gavel.launch.runs.child import find_existing_run, read_run_config
from gavel.launch.runs.files import is_altered
from gavel.launch.runs.folder import read_results
from gavel.launch.runs.identity import list_differences, make_identity
from gavel.launch.runs.inputs import PlannedRow, read_inputs
from gavel.launch.runs.manifest import Manifest, read_manifest
from gavel.launch.runs.rereading import Rereader
from gavel.launch.runs.stored import describe_fault
from gavel.models.codec import compute_digest, to_plain
from gavel.models.errors import GavelError, InputError, RecordError

FILES = ("inputs.jsonl", "transcripts.jsonl", "results.jsonl", "errors.jsonl")
AGREES, DISAGREES = 0, 2


@dataclass(slots=True)
class RunVerification:
    """What was found: ``reread`` counts rows whose outcome was made again, ``unread`` those that it could not be, by
    reason.
    """

    faults: list[RecordError] = field(default_factory=list)
    lines: int = 0
    undigested: int = 0
    torn: list[str] = field(default_factory=list)
    rewarded: int = 0
    ungraded: int = 0
    reread: int = 0
    unread: Counter[str] = field(default_factory=Counter)


def run(config: VerifyConfig, console: Console) -> int:
    """Run the verb; see ``gavel verify --help``. Returns 0 where everything agrees, else 2."""
    path = find_existing_run(config.run.dir, "verify")
    found = verify_run(path)
    for fault in found.faults:
        print_line(console, describe_fault(fault))
    print_line(
        console,
        f"{found.lines} lines; made again: {found.rewarded} rewards, {found.reread} outcomes from stored replies",
    )
    if found.undigested:
        print_line(console, f"{found.undigested} lines carry no digest: an older version wrote them")
    if found.torn:
        print_line(console, f"the last line was never finished, and is passed over: {', '.join(found.torn)}")
    if found.ungraded:
        print_line(console, f"{found.ungraded} planned rows have no grade")
    for reason, count in found.unread.most_common():
        print_line(console, f"{count} outcomes could not be made again: {reason}")
    if found.faults:
        print_line(console, f"{len(found.faults)} disagreements in {path}", style="bold")
        return DISAGREES
    what = "everything agrees" if not found.unread else "whatever could be looked at agrees"
    print_line(console, f"{what}; this is no signature: who can write the folder can write digests, too")
    return AGREES


def verify_run(path: Path) -> RunVerification:
    """Look at every stored line of a run.

    Raises:
        GavelError: the run's manifest cannot be read, or its reward policy cannot be made here.
    """
    found = RunVerification()
    manifest = read_manifest(path)
    assert manifest is not None
    _check_files(path, found)
    planned = read_inputs(path, found.faults.append)
    if manifest.digests.get("identity") != compute_digest(manifest.identity):
        _add_fault(found, path / "manifest.json", "digests.identity", "another identity's", "")
    reward = make_reward(manifest.reward)
    results = _read_rows(path, planned, reward, found)
    found.ungraded = len({row.key for row in planned} - {(row.task_id, row.rollout_index) for row in results})
    assembly = _assemble_stored(path, manifest, found, len(results))
    if assembly is not None:
        asyncio.run(_reread_rows(path, manifest, planned, results, assembly, reward, found))
    return found


def _add_fault(
    found: RunVerification, file: Path, name: str, stored: str, right: str, problem: str = "it is not as it was written"
) -> None:
    found.faults.append(RecordError(problem, where=str(file), field=name, found=stored, allowed=right))


def _check_files(path: Path, found: RunVerification) -> None:
    """Look at what stands at each name, and at which lines carry a digest; that of each line is looked at where it is
    read.
    """
    for name in (*FILES, "config.yaml", "manifest.json"):
        if (path / name).is_symlink():
            _add_fault(found, path / name, "file", f"a link to {(path / name).readlink()}", "a file of this folder")
    for name in FILES:
        file, digested = path / name, False
        if not file.is_file():
            continue
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    found.torn.append(name)
                    break
                found.lines += 1
                if is_altered(line) is not None:
                    digested = True
                elif digested:
                    found.faults.append(
                        RecordError(
                            "this line",
                            where=f"{file}:{number}",
                            field="line_digest",
                            allowed="one, as the lines before",
                        )
                    )
                elif name != "inputs.jsonl":  # whose tasks have digests of their own
                    found.undigested += 1


def _read_rows(path: Path, planned: Sequence[PlannedRow], reward: RewardPolicy, found: RunVerification) -> list[Result]:
    """Return the graded rows, without what no line of theirs needs any more."""
    digests = {row.key: row.task_digest for row in planned}
    results = list(read_results(path, "results.jsonl", reward, digests, found.faults.append))
    for _ in read_results(path, "errors.jsonl", reward, digests, found.faults.append):
        pass
    found.rewarded = sum(row.reward is not None for row in results)
    return results


def _assemble_stored(path: Path, manifest: Manifest, found: RunVerification, rows: int) -> Assembly | None:
    """Put the run together, as its config says; None where that cannot be done here."""
    try:
        config = read_run_config(path)
    except (InputError, OSError) as failed:
        _add_fault(found, path / "config.yaml", "", str(failed).splitlines()[0], "", "the config cannot be read")
        return None
    try:
        assembly = assemble_run(
            replace(config, dry_run=True, assets=replace(config.assets, offline=True)), with_policy=True
        )
    except (GavelError, OSError) as failed:
        found.unread[f"the run cannot be put together here: {str(failed).splitlines()[0]}"] += rows
        return None
    made = make_identity(config.env, config.policy, config.services, assembly.bindings)
    for line in list_differences(to_plain(manifest.identity), to_plain(made)):
        name, _, values = line.partition(": ")
        if not name.endswith(_DIGESTS) and not name.startswith("services."):
            stored, _, right = values.partition(" -> ")
            _add_fault(found, path / "manifest.json", f"identity.{name}", stored, f"{right}, of config.yaml")
    return assembly


_DIGESTS = (".identity", ".rubric")
"""Parts of an identity that another version makes otherwise."""


async def _reread_rows(
    path: Path,
    manifest: Manifest,
    planned: Sequence[PlannedRow],
    results: Sequence[Result],
    assembly: Assembly,
    reward: RewardPolicy,
    found: RunVerification,
) -> None:
    rereader = Rereader.from_run(path, manifest, planned, assembly, reward, found.faults.append)
    for result in results:
        await rereader.find_faults(result, str(path / "results.jsonl"), found.faults.append)
    found.reread, found.unread = rereader.reread, found.unread + rereader.unread
