"""Rubrics of a user's own files: found, bound where nothing binds them, and read into the config, so that a run folder
holds them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf

from gavel.judges.rubrics.file import read_rubric_file
from gavel.judges.types import RubricConfig
from gavel.launch.compose.overrides import GroupChoice, Removal, Setting
from gavel.launch.config.groups import list_choices
from gavel.models.errors import ConfigError

T = TypeVar("T")

_SAMPLING = ("max_response_tokens", "temperature", "top_p", "reasoning_effort")


def find_meant_groups(
    verb: str, words: Sequence[GroupChoice | Setting | Removal], folders: Sequence[Path]
) -> list[GroupChoice]:
    """Return the groups that a command means without choosing them.

    One that names a rubric's file, under a name that no environment's own config has, and chooses neither an
    environment nor an experiment means ``env=judged``. ``gavel probe … dry_run=true`` shows such a rubric's prompts: it
    needs no judge.

    Args:
        verb: the verb.
        words: the command's words.
        folders: the config folders.

    Raises:
        ConfigError: a rubric is set to a text.
    """
    chosen = {word.group for word in words if isinstance(word, GroupChoice)}
    settings = {word.key: word.text for word in words if isinstance(word, Setting)}
    for key, text in settings.items():
        name = key.removeprefix("rubrics.")
        if key.startswith("rubrics.") and "." not in name and text and text[0] not in "{$" and text != "null":
            raise ConfigError(
                "a rubric's file is named by a key of its own",
                field=key,
                found=text,
                allowed=f"{key}.file=FILE.yaml, or {key}.profile=PROFILE",
                remedy=f"write {key}.{'file' if text.endswith(('.yaml', '.yml')) else 'profile'}={text}",
            )
    named = {key.split(".")[1] for key in settings if key.startswith("rubrics.") and key.endswith(".file")}
    if not named - set(list_choices("env", folders)):
        return []
    meant = [] if chosen & {"env", "experiment"} else [GroupChoice("env", None, "judged")]
    judged = chosen & {"judge", "experiment"} or any(key.startswith("judge.") for key in settings)
    if verb == "probe" and settings.get("dry_run") == "true" and not judged:
        meant.append(GroupChoice("judge", None, "none"))
    return meant


def bind_rubric_files(tree: DictConfig) -> None:
    """Bind each rubric of a file that no binding uses, under its own name, to the judge."""
    rubrics = OmegaConf.select(tree, "rubrics") or {}
    bindings = OmegaConf.select(tree, "judging.bindings") or {}
    used = {binding.get("rubric") for binding in bindings.values() if isinstance(binding, DictConfig)}
    for name, rubric in rubrics.items():
        if isinstance(rubric, DictConfig) and rubric.get("file") is not None and name not in used:
            given = bindings.get(name)
            own = OmegaConf.to_container(given) if isinstance(given, DictConfig) else {}
            if isinstance(own, dict) and own.get("rubric") is None:  # such as judge=[a,b] alone
                made = {"judge": "general", **own, "rubric": name}
                OmegaConf.update(tree, f"judging.bindings.{name}", made, force_add=True)


def read_rubric_files(
    config: T, rubrics: Mapping[str, RubricConfig], folders: Sequence[Path], settings: Collection[str]
) -> T:
    """Return a verb's config with the rubrics of files read into it.

    Where a file takes the place of a profile, the sampling beside that profile goes with it; what the command line says
    stays.

    Args:
        config: has ``rubrics``.
        rubrics: of the config.
        folders: the config folders, in which a file is looked for after the working folder.
        settings: the keys that the command line sets.

    Raises:
        ConfigError: a file cannot be read, or does not fit together.
    """
    read = {name: _read_rubric(name, rubric, folders, settings) for name, rubric in rubrics.items()}
    return replace(config, rubrics=read) if read != rubrics else config  # type: ignore[type-var]


def _read_rubric(name: str, rubric: RubricConfig, folders: Sequence[Path], settings: Collection[str]) -> RubricConfig:
    if not isinstance(rubric.file, str):
        return rubric
    form = read_rubric_file(_find_file(rubric.file, folders), f"rubrics.{name}.file")
    dropped: dict[str, Any] = {}
    if rubric.profile:
        dropped = {key: None for key in _SAMPLING if f"rubrics.{name}.{key}" not in settings}
    return replace(rubric, profile=form.name, file=form, **dropped)


def _find_file(text: str, folders: Sequence[Path]) -> Path:
    path = Path(text).expanduser()
    places = [path, *(folder / part / path for folder in folders for part in ("rubrics", "."))]
    return next((place for place in places if place.is_file()), path)
