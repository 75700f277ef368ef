"""Several environments in one training: each is composed as a training of its own, with the words that are said of it,
and they are joined.

``env@envs.NAME=CHOICE`` adds one; ``envs.NAME.KEY=VALUE`` and ``GROUP@envs.NAME=CHOICE`` say what is its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from gavel.launch.config.schema import TrainConfig
from gavel.launch.config.training_schema import TrainedOptions
from gavel.models.codec import to_plain
from gavel.models.errors import ConfigError

T = TypeVar("T")
OWN = ("env", "reward", "source", "rubrics", "judging", "tasks", "validation", "weight")
"""What is said of one environment; everything else is said of the training."""
_CHOICE = re.compile(r"(?P<group>\w+)@envs\.(?P<name>[^.=]+)=(?P<choice>.*)", re.DOTALL)
_KEY = re.compile(r"\+{0,2}envs\.(?P<name>[^.=]+)\.(?P<rest>.+)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def split_words(words: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the words of the whole training, and by name those of each of its environments.

    Raises:
        ConfigError: a word says of one environment what is the training's, or the other way round.
    """
    shared: list[str] = []
    own: dict[str, list[str]] = {}
    for word in words:
        choice, key = _CHOICE.fullmatch(word), _KEY.fullmatch(word)
        if choice is not None:
            own.setdefault(choice["name"], []).append(f"{choice['group']}={choice['choice']}")
        elif key is not None:
            own.setdefault(key["name"], []).append(key["rest"])
        else:
            shared.append(word)
    if own:
        _check_words(shared, own)
    return shared, own


def join_environments(
    shared: Sequence[str], own: Mapping[str, Sequence[str]], compose: Callable[[Sequence[str]], TrainConfig]
) -> TrainConfig:
    """Return the config of a training in several environments: that of the first, with what all of them bind.

    Args:
        shared: the words of all.
        own: by name, what is said of one.
        compose: composes a training in one environment.

    Raises:
        ConfigError: a word does not fit, or two environments bind one name to different things.
    """
    composed: dict[str, TrainConfig] = {}
    weights: dict[str, float] = {}
    for name, words in own.items():
        weights[name] = _read_weight(name, words)
        try:
            composed[name] = compose([*shared, *(word for word in words if _find_key(word) != "weight")])
        except ConfigError as failed:
            if _find_key(failed.field) in OWN:  # what all share is named as it was said
                failed.field = f"envs.{name}.{failed.field}"
            raise
    first = next(iter(composed.values()))
    envs = {
        name: TrainedOptions(
            one.env, one.reward, one.rubrics, one.judging, one.tasks.path, one.tasks.limit, one.validation.path,
            one.validation.limit, weights[name],
        )
        for name, one in composed.items()
    }  # fmt: skip
    bindings = _join_tables("judging.bindings", {name: one.judging.bindings for name, one in composed.items()})
    return replace(
        first,
        rubrics=_join_tables("rubrics", {name: one.rubrics for name, one in composed.items()}),
        judging=replace(first.judging, bindings=bindings),
        services=_join_tables("services", {name: one.services for name, one in composed.items()}),
        envs=envs,
    )


def _check_words(shared: Sequence[str], own: Mapping[str, Sequence[str]]) -> None:
    for word in shared:
        if (key := _find_key(word)) in OWN:
            raise ConfigError(
                "with several environments this is said of one of them",
                field=word.partition("=")[0],
                remedy=f"envs.{next(iter(own))}.{word}" if "." in word.partition("=")[0] else f"{key}@envs.NAME=…",
            )
    for name, words in own.items():
        if not _NAME.fullmatch(name):
            raise ConfigError("this is no name of an environment", field=f"envs.{name}", allowed="letters, digits, _ -")
        if not any(word.startswith("env=") for word in words):
            raise ConfigError("this environment is not chosen", field=f"envs.{name}", remedy=f"env@envs.{name}=CHOICE")
        for word in words:
            if (key := _find_key(word)) not in OWN:
                raise ConfigError(
                    "all environments of a training share this",
                    field=f"envs.{name}.{key}",
                    allowed=", ".join(OWN),
                    remedy=f"set {word.partition('=')[0]} for the training; a judge of its own is a service: "
                    f"services.NAME.…, envs.{name}.judging.bindings.BINDING.judge=NAME",
                )


def _find_key(word: str) -> str:
    return word.lstrip("+~").partition("=")[0].partition(".")[0].partition("@")[0]


def _read_weight(name: str, words: Sequence[str]) -> float:
    said = [word.partition("=")[2] for word in words if _find_key(word) == "weight"]
    try:
        weight = float(said[-1]) if said else 1.0
    except ValueError:
        weight = 0.0
    if not 0 < weight < float("inf"):
        raise ConfigError("this is no weight", field=f"envs.{name}.weight", found=said[-1], allowed="a number above 0")
    return weight


def _join_tables(key: str, tables: Mapping[str, Mapping[str, T]]) -> dict[str, T]:
    joined: dict[str, tuple[str, T]] = {}
    for env, table in tables.items():
        for name, value in table.items():
            first, known = joined.setdefault(name, (env, value))
            if to_plain(known) != to_plain(value):
                raise ConfigError(
                    "two environments use one name for different things",
                    field=f"envs.{env}.{key}.{name}",
                    found=f"another one in envs.{first}",
                    remedy="give one of them a name of its own",
                )
    return {name: value for name, (_, value) in joined.items()}
