"""``-m``: one command for many points; each is a run of its own, and one that fails stops no other."""

from __future__ import annotations

import importlib
import itertools
import re
import shlex
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, RangeSweep
from hydra.errors import HydraException
from rich.console import Console

from gavel.launch.assembly.assemble import assemble_run
from gavel.launch.compose.compose import compose_config
from gavel.launch.compose.next_command import FailedCommand
from gavel.launch.compose.verbs import SWEPT, find_verb
from gavel.launch.config.console import print_line
from gavel.launch.config.groups import list_choices, list_groups, search_path
from gavel.launch.config.schema import TrainConfig
from gavel.launch.runs.sweep_index import INDEX, SweepIndex, SweepPoint, merge_index, write_index
from gavel.launch.training import slurm
from gavel.launch.training.attempts import AGAIN, is_finished
from gavel.launch.training.layout import list_managed
from gavel.launch.training.render import SBATCH
from gavel.launch.training.start import find_job
from gavel.launch.training.sweep.output import Told
from gavel.models.codec import compute_digest, to_plain
from gavel.models.errors import ConfigError, Findings, GavelError, format_findings, shorten_value

FOLDER_KEY = {"train": "run.dir", "rescore": "into"}
STATES = {0: "finished", 3: "incomplete", AGAIN: "interrupted"}
MOST = 500
WHOLE, BAD, INCOMPLETE, INTERRUPTED = 0, 2, 3, 130
_UNSAFE = re.compile(r"[^A-Za-z0-9._=+-]+")


def run(verb: str, words: Sequence[str], config_dirs: Iterable[str], runs: Sequence[str], console: Console) -> int:
    """Run a verb at every point; return 0 if all is well, 2 if every point failed, 3 if some did, 130 when interrupted.

    Raises:
        ConfigError: the verb has no sweeps, or nothing is swept.
    """
    if verb not in SWEPT:
        raise ConfigError(
            "this verb has no sweeps",
            field="-m",
            found=f"gavel {verb}",
            allowed=", ".join(SWEPT),
            remedy="leave -m out",
        )
    _refuse_swept(verb, words)
    folder, common = _choose_folder(verb, words, runs)
    common = [expand_glob(word, config_dirs) for word in common]
    points = expand_points(common)
    if len(points) < 2:
        raise ConfigError("nothing is swept", field="-m", remedy="give a key several values: reward.abstain=0.3,0.5")
    if len(points) > MOST:
        raise ConfigError("too many points", field="-m", found=str(len(points)), allowed=f"at most {MOST}")
    if len(set(points)) < len(points):
        twice = next(point for number, point in enumerate(points) if point in points[:number])
        raise ConfigError("two points are the same", field="-m", found=" ".join(twice), remedy="name each value once")
    shared = tuple(word for word in common if not _list_values(word)[1:])
    index = SweepIndex(
        verb, shared, tuple(SweepPoint(number, _make_name(number, point), point) for number, point in enumerate(points))
    )
    dry = any(word.replace(" ", "") == "dry_run=true" for word in shared)
    index = merge_index(folder, index, _make_name)
    if not dry:
        folder.mkdir(parents=True, exist_ok=True)
        write_index(folder, index)
    told = Told(console, folder, len(points), dry=dry and verb == "train", quiet=verb == "rescore" and not dry)
    for point in index.points:
        done = _run_point(verb, point, shared, [*config_dirs], runs, folder, told)
        index = replace(index, points=tuple(done if one.index == done.index else one for one in index.points))
        if not dry:
            write_index(folder, index)
        if done.code == INTERRUPTED:
            return INTERRUPTED
    told.close_output()
    return _close_sweep(folder, index, console, dry=dry)


def _refuse_swept(verb: str, words: Sequence[str]) -> None:
    """Refuse several values of what belongs to the sweep and not to a point.

    Raises:
        ConfigError: names the word.
    """
    for word in words:
        if word.partition("=")[0] in (FOLDER_KEY[verb], "dry_run") and _list_values(word)[1:]:
            raise ConfigError(
                "a sweep has one value of this",
                field=word.partition("=")[0],
                found=word.partition("=")[2],
                remedy="name one; a folder with a comma in its name needs quotes: \"'a,b'\"",
            )


def expand_points(words: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the points of a sweep: for each, the words that differ, in the order they were given, the last one
    changing fastest.
    """
    swept = [values for values in map(_list_values, words) if len(values) > 1]
    return list(itertools.product(*swept)) if swept else []


def _list_values(word: str) -> list[str]:
    """Return a word once per value it has in Hydra's grammar (``a=1,2``, ``a=range(1,4)``); a plain one as it is."""
    if word.startswith("~") or "=" not in word:
        return [word]
    try:
        parsed = OverridesParser.create().parse_override(word)
    except HydraException:
        return [word]  # composing says what is wrong with it
    if not parsed.is_sweep_override():
        return [word]
    if not (parsed.is_choice_sweep() or parsed.is_range_sweep()):
        raise ConfigError(
            "these values cannot be counted up, which takes a sweeper that searches",
            field=word.partition("=")[0],
            found=word.partition("=")[2],
            allowed="a,b,c, choice(a,b), range(1,4), and glob(m*) for a group",
            remedy="name the values one by one",
        )
    values = list(parsed.sweep_string_iterator())
    if isinstance(parsed.value(), RangeSweep):  # 3 * 0.05 is 0.15000000000000002
        values = [f"{float(value):.12g}" if "." in value else value for value in values]
    return [f"{word.partition('=')[0]}={value}" for value in values]


def expand_glob(word: str, config_dirs: Iterable[str]) -> str:
    """Return ``group=glob(m*)`` as a sweep over the group's choices that fit, in the order of their names; any other
    word as it is.

    Raises:
        ConfigError: what is globbed is no group, or nothing fits.
    """
    try:
        parsed = OverridesParser.create().parse_override(word) if "=" in word else None
    except HydraException:
        return word
    pattern = parsed.value() if parsed is not None else None
    if not isinstance(pattern, Glob):
        return word
    key, _, text = word.partition("=")
    folders = search_path(config_dirs)
    group = key.lstrip("+").partition("@")[0]
    if group not in list_groups(folders):
        raise ConfigError(
            "only the choices of a group can be globbed", field=key, found=text, allowed=", ".join(list_groups(folders))
        )
    found = pattern.filter(sorted(list_choices(group, folders)))
    if not found:
        raise ConfigError(
            "no choice of this group fits", field=key, found=text, allowed=", ".join(list_choices(group, folders))
        )
    return f"{key}={','.join(found)}"


def _make_name(number: int, point: Sequence[str]) -> str:
    text = _UNSAFE.sub("_", ",".join(word.lstrip("+").replace("/", "_") for word in point)).strip("_")
    return f"{number:03}-{text[:80]}"


def _choose_folder(verb: str, words: Sequence[str], runs: Sequence[str]) -> tuple[Path, list[str]]:
    """Return the sweep's folder, and the words without it."""
    key = FOLDER_KEY[verb]
    named = [word.partition("=")[2].strip("'\"") for word in words if word.partition("=")[0] == key]
    common = [word for word in words if word.partition("=")[0] != key]
    if verb == "rescore" and len(runs) != 1:
        raise ConfigError(
            "one run is rescored",
            field="run.dir",
            found=", ".join(runs) or "none",
            remedy="gavel rescore RUN -m reward=…",
        )
    if named:
        return Path(named[-1]).expanduser().absolute(), common
    if verb == "rescore":
        parent = Path(runs[0]).expanduser().absolute()
        return parent.with_name(f"{parent.name}-sweep-{compute_digest(common)[7:15]}"), common
    default = runs[0] if runs else time.strftime("runs/sweep-%Y%m%d-%H%M%S")
    return Path(default).expanduser().absolute(), common


def _run_point(
    verb: str,
    point: SweepPoint,
    shared: Sequence[str],
    config_dirs: Sequence[str],
    runs: Sequence[str],
    folder: Path,
    told: Told,
) -> SweepPoint:
    place = "'" + str(folder / point.name).replace("'", "\\'") + "'"
    words = [*shared, *point.overrides, f"{FOLDER_KEY[verb]}={place}"]
    asked = FailedCommand(verb, words, config_dirs)
    try:
        with told.show_point(point) as console:
            config = compose_config(verb, words, config_dirs, runs if verb == "rescore" else ())
            if isinstance(config, TrainConfig):
                if not config.dry_run and is_finished(folder / point.name):
                    print_line(console, "finished already")
                    return replace(point, state="finished", code=WHOLE, note=None)
                if (
                    not config.dry_run
                    and config.cluster.kind == "slurm"
                    and (job := slurm.find_queued(folder / point.name / SBATCH))
                ):
                    print_line(console, f"job {job} is in the queue already")
                    return replace(point, state="submitted", code=None, note=f"job {job}")
                config = with_shared_judge(config, folder)
            code = int(importlib.import_module(find_verb(verb).module).run(config, console))
    except Findings as failed:
        asked.spell_remedies(failed)
        found = [str(finding) for finding in failed.findings]
        told.add_findings(point, found)
        first = found[0].splitlines()[0]
        note = f"{format_findings(len(found))}, the first: {first}" if found[1:] else first
        return replace(point, state="failed", code=failed.exit_code, note=note)
    except (GavelError, OSError) as failed:
        told.show_failed(point, str(asked.spell_remedies(failed) if isinstance(failed, GavelError) else failed))
        code = failed.exit_code if isinstance(failed, GavelError) else BAD
        return replace(point, state="failed", code=code, note=shorten_value(" ".join(str(failed).split()), 400))
    told.show_done(point)
    job = (
        find_job(folder / point.name) if verb == "train" and code == WHOLE and config.cluster.kind == "slurm" else None
    )
    if job is not None:
        return replace(point, state="submitted", code=None, note=f"job {job}")
    return replace(point, state="interrupted" if code == INTERRUPTED else STATES.get(code, "failed"), code=code)


def with_shared_judge(config: TrainConfig, folder: Path) -> TrainConfig:
    """Let a point use the judge that all points with the same one share, unless its placement says otherwise."""
    placement: Any = config.placement
    if placement.mode not in (None, "shared") or placement.folder:
        return config
    served = list_managed(assemble_run(config, with_policy=False).services)
    on_gpus = any(not service.cpu for service in served.values())
    if not served or (placement.mode is None and config.cluster.kind == "local" and on_gpus):
        return config  # here, judge and policy share the machine's GPUs out between them
    key = compute_digest([to_plain(served), placement.nodes])[7:15]
    return replace(config, placement=replace(placement, mode="shared", folder=str(folder / f"judge-{key}")))


def _close_sweep(folder: Path, index: SweepIndex, console: Console, *, dry: bool) -> int:
    counts: dict[str, int] = {}
    for point in index.points:
        state = "ready" if dry and point.state == "finished" else point.state
        counts[state] = counts.get(state, 0) + 1
    print_line(
        console,
        f"\n{len(index.points)} points: {', '.join(f'{count} {state}' for state, count in counts.items())}",
        style="bold",
    )
    if not dry:
        print_line(console, f"index: {folder / INDEX}")
        if index.verb == "train":
            print_line(console, f"how they go: gavel status {shlex.quote(str(folder))}")
        elif sum(point.state in STATES.values() for point in index.points) > 1:
            print_line(console, f"compare: gavel compare {shlex.quote(str(folder))}")
    failed = sum(point.state == "failed" for point in index.points)
    if failed == len(index.points):
        return BAD
    return INCOMPLETE if failed or counts.get("incomplete") else WHOLE
