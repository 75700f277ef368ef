"""How runs that are compared differ by more than their reward, and short names that tell them apart."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gavel.launch.assembly.qualification import read_run_standings
from gavel.launch.runs.child import read_run_config
from gavel.launch.runs.identity import list_differences
from gavel.launch.runs.manifest import Manifest, read_manifest
from gavel.models.codec import to_plain
from gavel.models.errors import GavelError

_NUMBER = re.compile(r"^\d{3}-")
_WORD = re.compile(r"[^=_][^=]*=[^=]*?(?=_[^=]*=|$)")
_LONG = re.compile(r"(?<!\d)\d++\.\d{12,}+")
"""A number that was added up, such as 0.15000000000000002."""
"""One word of a point's name, ``key=value``: the words are joined by underscores, which keys have too."""


def list_identity_notes(paths: Sequence[Path], names: Sequence[str]) -> list[str]:
    """Say where runs differ by more than their reward: the reader must know what is compared."""
    manifests = [read_manifest(path) for path in paths]
    first = manifests[0]
    if first is None:
        return []
    lines = []
    for name, path, manifest in zip(names[1:], paths[1:], manifests[1:], strict=True):
        if manifest is not None:
            lines += [f"{name}: {line}" for line in _list_changes(paths[0], first, path, manifest)]
    return lines


def _list_changes(base: Path, old: Manifest, path: Path, new: Manifest) -> list[str]:
    lines = []
    for what, before, after in (
        ("another environment", old.identity.env, new.identity.env),
        ("the replies of another policy", old.identity.policy, new.identity.policy),
    ):
        if changed := list_differences(to_plain(before), to_plain(after)):
            lines.append(f"{what}: {'; '.join(changed[:3])}")
    if to_plain(old.identity.bindings) != to_plain(new.identity.bindings):
        lines.append(
            f"graded with another rubric or judge: {describe_grading(base, old)} -> {describe_grading(path, new)}"
        )
    return lines


def describe_grading(path: Path, manifest: Manifest) -> str:
    """Return the judges of a run with their rubrics: ``my-judge with gavel/qa-abstention-v1 (rubric 87462197)``."""
    profiles = _read_profiles(path)
    return (
        ", ".join(_describe_grader(name, binding, profiles) for name, binding in manifest.identity.bindings.items())
        or "no judge"
    )


def _describe_grader(name: str, binding: Mapping[str, Any], profiles: Mapping[str, str]) -> str:
    digest = str(binding.get("rubric") or "").removeprefix("sha256:")[:8]
    revision = f" at {str(binding['revision'])[:8]}" if binding.get("revision") else ""
    rubric = f" with {profiles[name]} (rubric {digest})" if name in profiles else f" with rubric {digest}"
    return f"{binding.get('judge') or 'no judge'}{revision}{rubric}"


def _read_profiles(path: Path) -> dict[str, str]:
    """Return the rubric's profile by binding; nothing where another version wrote the config."""
    try:
        config = read_run_config(path)
    except (GavelError, OSError):
        return {}
    return {
        name: config.rubrics[one.rubric].profile
        for name, one in config.judging.bindings.items()
        if one.rubric in config.rubrics
    }


def judge_notes(paths: Sequence[Path], names: Sequence[str]) -> list[str]:
    """Say of each run's judges whether they qualified; what is the same of all is said once."""
    said: dict[str, list[str]] = {}
    for path, name in zip(paths, names, strict=True):
        try:
            lines = [standing.line for standing in read_run_standings(read_run_config(path), path)]
        except (GavelError, OSError):
            continue
        for line in lines:
            said.setdefault(line, []).append(name)
    return [line if len(runs) == len(paths) else f"{', '.join(runs)}: {line}" for line, runs in said.items()]


def shorten_names(names: Sequence[str]) -> list[str]:
    """Return what tells names apart: words that all points of a sweep share are left out, and what a child has of its
    parent's name.

    ``000-seed=1_reward.abstain=0.3``, ``001-seed=1_reward.abstain=0.5`` -> ``abstain=0.3``, ``abstain=0.5``;
    ``demo``, ``demo-rescore-abstain-0.3`` -> ``demo``, ``rescore-abstain-0.3``.
    """
    if len(names) > 1 and all(_NUMBER.match(name) for name in names):
        found = _find_differing([_WORD.findall(_NUMBER.sub("", name)) for name in names])
    else:
        first = names[0]
        found = [first, *(name.removeprefix(f"{first}-") or name for name in names[1:])]
        if found == list(names):
            shared = next(
                (place for place, letters in enumerate(zip(*names, strict=False)) if len(set(letters)) > 1), 0
            )
            place = max(first.rfind("-", 0, shared), first.rfind("/", 0, shared)) + 1
            found = [name[place:] for name in names]
    return found if len(set(found)) == len(found) and all(found) else list(names)


def _find_differing(names: Sequence[Sequence[str]]) -> list[str]:
    """Return the words by which names differ, without the path of their keys."""
    if len({len(words) for words in names}) > 1:
        return [" ".join(words) for words in names]
    places = [place for place in range(len(names[0])) if len({words[place] for words in names}) > 1]
    return [" ".join(_shorten_word(words[place]) for place in places) for words in names]


def _shorten_word(word: str) -> str:
    key, equals, value = word.partition("=")
    return f"{key.rpartition('.')[2]}{equals}{_LONG.sub(lambda found: f'{float(found[0]):.12g}', value)}"
