"""The services of a composed config: refused before anything is started where one cannot work; and keys that nothing
here reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gavel.launch.compose.verbs import VERBS
from gavel.launch.config import schema as schemas
from gavel.launch.config.groups import CONF, list_choices
from gavel.models.codec import to_plain
from gavel.models.errors import ConfigError, shorten_value
from gavel.models.service import OMITTED, Service
from gavel.models.service_check import check_effects, check_secrets, check_service


def check_services(verb: str, config: Any) -> None:
    """Refuse a service that cannot work; those no binding uses may stay incomplete."""
    if isinstance(config, schemas.Composition):
        # Every service is stored with the run, also one that this verb does not call.
        for name, service in (("policy", config.policy), ("judge", config.judge)):
            check_secrets(name, service)
        for name, service in config.services.items():
            check_service(f"services.{name}", service)
            check_effects(f"services.{name}", service)
        if verb == "rollout" or (isinstance(config, schemas.ServeConfig) and config.gym.play):
            _check_chosen("policy", config.policy)
        judged = getattr(config, "upstream", None) is None  # a comparison with upstream calls no model
        if judged and any("general" in binding.judges for binding in config.judging.bindings.values()):
            _check_chosen("judge", config.judge)
    elif (
        verb != "judge" and (judge := getattr(config, "judge", None)) is not None
    ):  # `judge` says itself what it cannot serve
        _check_chosen("judge", judge)


def _check_chosen(group: str, service: Service) -> None:
    if service.mode == "external" and service.base_url is None and service.model is None:
        raise ConfigError(
            f"this choice needs {group}.base_url and {group}.model",
            field=group,
            allowed=", ".join(list_choices(group, [CONF])),
            remedy=f"set {group}.base_url=http://HOST:PORT/v1 {group}.model=NAME, or choose another: {group}=smollm2",
        )
    check_service(group, service)
    check_effects(group, service)
    if group == "judge":
        _check_unsampled("judge", service)


_OF_RUBRIC = ("temperature", "top_p", "max_response_tokens", "reasoning_effort")
"""Fields of a judge's sampling that are its rubric's."""


def _check_unsampled(name: str, service: Service) -> None:
    """Refuse a sampling for a judge: its rubric has one, which the rubric's digest covers."""
    for key, value in to_plain(service.sampling).items():
        if value in (None, [], {}):
            continue
        right = f"rubrics.NAME.{key}" if key in _OF_RUBRIC else f"{name}.extra_body"
        written = (
            f"rubrics.NAME.{key}={value}"
            if key in _OF_RUBRIC
            else f"{name}.extra_body={_format_flow(value if key == 'extra' else {key: value})}"
        )
        raise ConfigError(
            "this sampling is not read: a judge's comes from its rubric, a simulator's from env.simulators",
            field=f"{name}.sampling.{key}",
            found=shorten_value(value),
            allowed=right,
            remedy=f"remove it, and write {written}"
            + (f"; to send none: {name}.omit=[{key}]" if key in OMITTED else ""),
        )


def _format_flow(value: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {_format_word(part)}" for key, part in value.items()) + "}"


def _format_word(value: Any) -> str:
    if isinstance(value, Mapping):
        return _format_flow(value)
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)


_NEEDED = {
    "deadline_margin": "deadline",
    "show_sensitive": "inspect",
    "export.wandb": "export.wandb.project",
    "export.mlflow": "export.mlflow.tracking_uri",
    "validation.limit": "validation.path",
    "upstream_python": "upstream",
    "source.revision": "source.dataset",
    "source.file": "source.dataset",
}
"""Keys, and the key without which none of them is read."""

_SIMULATED = ("name", "binding", "simulators")
READS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "prepare": {
        "abstention": ("name",),
        "instruction_following": ("name",),
        "vera_mh": (*_SIMULATED, "chatbot_prompt"),
    },
    "probe": {"vera_mh": _SIMULATED},
    "calibrate": {
        "abstention": ("name", "binding"),
        "instruction_following": ("name", "binding"),
        "vera_mh": _SIMULATED,
    },
}
"""Keys of our environments that a verb reads which does not play them. An environment that is not here is taken to read
all of its own:
those of ours that have controls are played by `gavel probe`."""

_WHY = {
    "prepare": "tasks do not depend on it",
    "probe": "only its judge is asked",
    "calibrate": "only its judge is asked",
}

_OF_CALLS = (
    "sampling", "max_tokens_field", "omit", "response_format", "thinking_tokens", "extra_body", "max_in_flight", "rpm", "tpm",  # noqa: E501
    "timeout", "deadline", "attempts", "cache", "thinking_opened",
)  # fmt: skip
"""Keys of a service that are about calls to it, which `gavel judge` does not make."""

_OF_JUDGES = ("cache", "response_format")
"""Keys of a service that only a judge's calls read: a policy's replies are drawn anew each time, in free form."""


def check_read(verb: str, config: Any, settings: Sequence[str]) -> None:
    """Refuse keys of the command line that are accepted, for other verbs or compositions have them, and that nothing
    here reads.

    Raises:
        ConfigError: names the key, and what would make it count.
    """
    values = to_plain(config)
    judges = (
        {judge for binding in config.judging.bindings.values() for judge in binding.judges}
        if isinstance(config, schemas.Composition)
        else set()
    )
    for key in settings:
        parts = key.split(".")
        value = _find_value(values, key)
        if value is None:
            continue
        if parts[0] == "env" and parts[1:]:
            _check_env_key(verb, str(config.env["name"]), key)
        if value in (False, [], {}):
            continue
        if verb == "judge" and parts[0] == "judge" and parts[1:2] and parts[1] in _OF_CALLS:
            raise ConfigError(
                "`gavel judge` serves, and makes no calls",
                field=key,
                remedy="remove it, and set it where the judge is asked",
            )
        needed = next((other for unread, other in _NEEDED.items() if f"{key}.".startswith(f"{unread}.")), None)
        if needed is not None and key != needed and _find_value(values, needed) is None:
            raise ConfigError(
                f"this key has no effect without {needed}", field=key, remedy=f"set {needed}=… too, or remove it"
            )
        if "price" in (parts[1:2] if parts[0] in ("policy", "judge") else parts[2:3] if parts[0] == "services" else ()):
            _check_price_read(verb, key)
        if parts[0] == "services" and parts[2:3] == ["sampling"]:
            _check_unsampled(f"services.{parts[1]}", config.services[parts[1]])
        if parts[0] == "policy" and isinstance(config, schemas.Composition) and "policy" not in judges:
            _check_policy_key(verb, config, key)


def _check_env_key(verb: str, env: str, key: str) -> None:
    name = key.split(".")[1]
    if name in READS.get(verb, {}).get(env, (name,)):
        return
    raise ConfigError(
        f"`gavel {verb}` does not read this key: {_WHY[verb]}",
        field=key,
        remedy="set source.binding=… instead"
        if name == "binding"
        else "remove it, and set it where the tasks are played",
    )


_ADDS_UP = ("rollout", "regrade")
"""Verbs that say what their calls cost."""


def _check_price_read(verb: str, key: str) -> None:
    if verb not in _ADDS_UP:
        raise ConfigError(
            f"`gavel {verb}` adds no money up", field=key, allowed=f"for {' and '.join(_ADDS_UP)}", remedy="remove it"
        )


def _check_policy_key(verb: str, config: schemas.Composition, key: str) -> None:
    if "policy" not in VERBS[verb].groups:
        raise ConfigError(f"`gavel {verb}` asks no policy", field=key, remedy="remove it")
    if isinstance(config, schemas.ServeConfig) and not config.gym.play:
        raise ConfigError(
            "the service asks its policy only where it plays", field=key, remedy="set gym.play=true, or remove it"
        )
    if key.split(".")[1] in _OF_JUDGES:
        raise ConfigError("this key has no effect here: only a judge's calls read it", field=key, remedy="remove it")


def _find_value(values: Any, key: str) -> Any:
    for part in key.split("."):
        values = values.get(part) if isinstance(values, Mapping) else None
    return values
