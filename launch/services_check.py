"""The services of a composed config: refused before anything is started where one cannot work, or where a key of one is never read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gavel.launch import schema as schemas
from gavel.launch.groups import CONF, choices
from gavel.launch.verbs import VERBS
from gavel.models.codec import plain
from gavel.models.errors import ConfigError, shorten
from gavel.models.service import OMITTED, Service
from gavel.models.service_check import check_secrets, check_service


def check_services(verb: str, config: Any) -> None:
    """Refuse a service that cannot work; those no binding uses may stay incomplete."""
    if isinstance(config, schemas.Composition):
        # Every service is stored with the run, also one that this verb does not call.
        for name, service in (("policy", config.policy), ("judge", config.judge)):
            check_secrets(name, service)
        for name, service in config.services.items():
            check_service(f"services.{name}", service)
        if verb == "rollout" or (isinstance(config, schemas.ServeConfig) and config.gym.play):
            _check_chosen("policy", config.policy)
        judged = getattr(config, "upstream", None) is None  # a comparison with upstream calls no model
        if judged and any(binding.judge == "general" for binding in config.judging.bindings.values()):
            _check_chosen("judge", config.judge)
    elif verb != "judge" and (judge := getattr(config, "judge", None)) is not None:  # `judge` says itself what it cannot serve
        _check_chosen("judge", judge)


def _check_chosen(group: str, service: Service) -> None:
    if service.mode == "external" and service.base_url is None and service.model is None:
        raise ConfigError(
            f"this choice needs {group}.base_url and {group}.model",
            field=group,
            allowed=", ".join(choices(group, [CONF])),
            remedy=f"set {group}.base_url=http://HOST:PORT/v1 {group}.model=NAME, or choose another: {group}=smollm2",
        )
    check_service(group, service)
    if group == "judge":
        _check_unsampled("judge", service)


_OF_RUBRIC = ("temperature", "top_p", "max_response_tokens", "reasoning_effort")
"""Fields of a judge's sampling that are its rubric's."""


def _check_unsampled(name: str, service: Service) -> None:
    """Refuse a sampling for a judge: its rubric has one, which the rubric's digest covers."""
    for key, value in plain(service.sampling).items():
        if value in (None, [], {}):
            continue
        right = f"rubrics.NAME.{key}" if key in _OF_RUBRIC else f"{name}.extra_body"
        written = (
            f"rubrics.NAME.{key}={value}"
            if key in _OF_RUBRIC
            else f"{name}.extra_body={_flow(value if key == 'extra' else {key: value})}"
        )
        raise ConfigError(
            "this sampling is not read: a judge's comes from its rubric, a simulator's from env.simulators",
            field=f"{name}.sampling.{key}",
            found=shorten(value),
            allowed=right,
            remedy=f"remove it, and write {written}" + (f"; to send none: {name}.omit=[{key}]" if key in OMITTED else ""),
        )


def _flow(value: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {_word(part)}" for key, part in value.items()) + "}"


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        return _flow(value)
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)


def check_read(verb: str, config: Any, settings: Sequence[str]) -> None:
    """Refuse keys of the command line that this verb accepts, for other verbs have them, and never reads."""
    judges = {binding.judge for binding in config.judging.bindings.values()} if isinstance(config, schemas.Composition) else set()
    for key in settings:
        head, _, rest = key.partition(".")
        if head == "services" and ".sampling." in f"{key}." and rest.partition(".")[0] in config.services:
            name = rest.partition(".")[0]
            _check_unsampled(f"services.{name}", config.services[name])
        if head == "policy" and isinstance(config, schemas.Composition) and "policy" not in {*VERBS[verb].groups, *judges}:
            raise ConfigError(f"`gavel {verb}` asks no policy", field=key, remedy="remove it")
