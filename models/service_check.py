"""What a service may be: refused before anything is started, before a folder is made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any
from urllib.parse import SplitResult, urlsplit

from gavel.models.calls.quirks import RESERVED_FIELDS
from gavel.models.codec import record
from gavel.models.errors import ConfigError, shorten_value
from gavel.models.secrets import find_suspect_field, is_credential_header, is_credential_name, is_likely_key
from gavel.models.service import OMITTED, RESERVED_PORTS, Service

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REVISION = re.compile(r"[0-9a-f]{40}")
_URL = "http(s)://host[:port]/v1"


def check_service(name: str, service: Service) -> None:
    """Refuse what cannot work, before anything is started.

    Args:
        name: the service's key in the config; the keys in errors start with it.
        service: the service as configured.

    Raises:
        ConfigError: names the key, what was found (a suspected key is never shown), what is allowed and the remedy.
    """
    check_secrets(name, service)
    if not service.model:
        raise ConfigError(
            "no model is named", field=f"{name}.model", remedy=f"set {name}.model=… to the name the server serves"
        )
    _check_ranges(name, service)
    _check_price(name, service)
    _check_body(name, service)
    (_check_external if service.mode == "external" else _check_managed)(name, service)
    replicas = len(service.base_urls) if service.mode == "external" else service.replicas
    if service.min_replicas > replicas:
        raise ConfigError(
            "there are not so many replicas",
            field=f"{name}.min_replicas",
            found=str(service.min_replicas),
            allowed=f"1 to {replicas}",
            remedy="name more servers: base_url=[URL,URL]" if service.mode == "external" else f"raise {name}.replicas",
        )


@record
class Range:
    """Numbers that are allowed: from ``low`` (left out itself where ``above``) to ``high``."""

    low: float
    high: float = float("inf")
    above: bool = False

    def contains(self, number: float) -> bool:
        """Tell whether a number is allowed; NaN never is."""
        return (number > self.low if self.above else number >= self.low) and number <= self.high

    def __str__(self) -> str:
        least = f"more than {self.low:g}" if self.above else f"{self.low:g}"
        if self.high == float("inf"):
            return least if self.above else f"at least {least}"
        return f"{least}{', at most' if self.above else ' to'} {self.high:g}"


_SOME, _COUNT = Range(0.0, above=True), Range(1)
RANGES: Mapping[str, Range] = {
    "sampling.temperature": Range(0.0),
    "sampling.top_p": Range(0.0, 1.0, above=True),
    "sampling.max_response_tokens": _COUNT,
    "thinking_tokens": Range(0),
    "max_in_flight": _COUNT,
    "rpm": _COUNT,
    "tpm": _COUNT,
    "timeout.connect": _SOME,
    "timeout.total": _SOME,
    "deadline": _SOME,
    "attempts": _COUNT,
    "min_replicas": _COUNT,
    "max_context_length": _COUNT,
    "gpus": _COUNT,
    "tensor_parallel_size": _COUNT,
    "replicas": _COUNT,
    "kv_cache_gb": _SOME,
    "port": Range(0, 65535),
    "startup_timeout": _SOME,
}
"""The numbers of a service by key; those that may be left out are not checked where they are."""


def _check_ranges(name: str, service: Service) -> None:
    for key, allowed in RANGES.items():
        value: Any = service
        for part in key.split("."):
            value = getattr(value, part)
        if value is not None and not allowed.contains(value):
            raise ConfigError(
                "this number is out of range", field=f"{name}.{key}", found=shorten_value(value), allowed=str(allowed)
            )


_PRICE = Range(0.0, 1e9)


def _check_price(name: str, service: Service) -> None:
    price = service.price
    for key, value in (
        () if price is None else (("input", price.input), ("output", price.output), ("cached", price.cached))
    ):
        if value is not None and not _PRICE.contains(value):
            raise ConfigError(
                "this is no price of a million tokens",
                field=f"{name}.price.{key}",
                found=str(value),
                allowed=str(_PRICE),
            )


_EXTERNAL_ONLY = ("base_url", "api_key_env", "key_header", "query", "served_as", "organization")
_MANAGED_ONLY = (
    "cpu",
    "gpus",
    "tensor_parallel_size",
    "replicas",
    "kv_cache_gb",
    "port",
    "python",
    "startup_timeout",
    "engine_args",
)


def check_effects(name: str, service: Service) -> None:
    """Refuse a key that this kind of service does not read, unless it says what it would be without it.

    For what a user composed; a service that we started ourselves and now reach at its URL keeps the keys it was started
    with.

    Raises:
        ConfigError: names the key.
    """
    unread = _MANAGED_ONLY if service.mode == "external" else _EXTERNAL_ONLY
    other = "a managed service" if service.mode == "external" else "an external service"
    found = [(key, f"only {other} reads it; this one has mode={service.mode}") for key in unread]
    if service.api == "responses":
        found.append(("max_tokens_field", "api=responses has one name for the output limit"))
    if not service.key_variables:
        found.append(("key_header", "no api_key_env names the key that would go into it"))
    for key, why in found:
        if getattr(service, key) not in (_UNSET[key], None, (), {}):
            raise ConfigError(
                f"this key has no effect here: {why}",
                field=f"{name}.{key}",
                found=shorten_value(getattr(service, key)),
                remedy=f"remove it, or unset it on the command line: ~{name}.{key}",
            )
    if service.api == "responses" and service.response_format == "tgi":
        raise ConfigError(
            "no server has both", field=f"{name}.response_format", found="tgi", allowed="with api=chat_completions only"
        )


_UNSET: Mapping[str, Any] = {item.name: item.default for item in fields(Service)}


_ELSEWHERE = {
    "temperature": "a judge's is rubrics.NAME.temperature, a policy's policy.sampling.temperature",
    "top_p": "a judge's is rubrics.NAME.top_p, a policy's policy.sampling.top_p",
    "max_tokens": "a judge's is rubrics.NAME.max_response_tokens, a policy's policy.sampling.max_response_tokens",
    "response_format": "set {name}.response_format",
}
_ELSEWHERE |= dict.fromkeys(("max_completion_tokens", "max_output_tokens"), _ELSEWHERE["max_tokens"])


def _check_body(name: str, service: Service) -> None:
    """Refuse fields of the body that are the client's, or that stand elsewhere, where more depends on them."""
    for field in service.omit:
        if field not in OMITTED:
            raise ConfigError(
                "there is no such field to leave out",
                field=f"{name}.omit",
                found=shorten_value(field),
                allowed=", ".join(OMITTED),
                remedy=f"a response format is left out by {name}.response_format=none" if "format" in field else "",
            )
        if getattr(service.sampling, field) not in (None, ()):
            raise ConfigError(
                f"this key has no effect here: {name}.omit leaves the field out",
                field=f"{name}.sampling.{field}",
                found=shorten_value(getattr(service.sampling, field)),
                remedy=f"set {name}.sampling.{field}=null (it is not sent then), or take it out of {name}.omit",
            )
    for field in service.extra_body or {}:
        if field in RESERVED_FIELDS:
            raise ConfigError(
                "this field belongs to the client", field=f"{name}.extra_body.{field}", remedy="remove it"
            )
        if field in _ELSEWHERE:
            raise ConfigError(
                "this field has a key of its own",
                field=f"{name}.extra_body.{field}",
                remedy=_ELSEWHERE[field].format(name=name),
            )
    if name == "policy" and "seed" in (service.extra_body or {}):
        raise ConfigError(
            "every rollout of a task would be drawn alike",
            field="policy.extra_body.seed",
            remedy="set policy.sampling.seed",
        )


def check_secrets(name: str, service: Service) -> None:
    """Refuse a credential that stands in a config itself; what is suspected is never shown.

    Args:
        name: the service's key in the config; the keys in errors start with it.
        service: the service as configured, however incomplete.

    Raises:
        ConfigError: names the key.
    """
    if service.api_key_env is not None and not service.key_variables:
        raise ConfigError(
            "no variable is named",
            field=f"{name}.api_key_env",
            found="[]",
            allowed="a name such as OPENAI_API_KEY, or null for no key",
        )
    for variable in service.key_variables:
        _check_variable(f"{name}.api_key_env", variable)
    for header, variable in (service.header_env or {}).items():
        _check_variable(f"{name}.header_env.{header}", variable)
    for header, value in (service.default_headers or {}).items():
        if is_credential_header(header) or find_suspect_field([value]) is not None:
            raise ConfigError(
                "a header that holds a credential may not stand in a config",
                field=f"{name}.default_headers.{header}",
                remedy=f"give the variable that holds it: {name}.header_env.{header}=VARIABLE",
            )
    for key, held in (
        ("sampling.extra", service.sampling.extra),
        ("engine_args", service.engine_args),
        ("chat_template_kwargs", service.chat_template_kwargs),
        ("extra_body", service.extra_body),
        ("query", service.query),
    ):
        if (path := find_suspect_field(held)) is not None:
            raise ConfigError(
                "a credential may not stand in a config",
                field=f"{name}.{key}.{path}",
                found="(not shown)",
                remedy="remove it; a key is given by api_key_env or header_env, to a server that is started here by "
                "its own variables",
            )
    for url in service.base_urls:
        _check_url_secrets(f"{name}.base_url", url)


def _check_variable(field: str, variable: str) -> None:
    if not _VARIABLE.fullmatch(variable) or is_likely_key(variable):
        raise ConfigError(
            "this is not the name of an environment variable",
            field=field,
            found=f"a text of {len(variable)} characters (not shown: it may be a key)",
            allowed="a name such as OPENAI_API_KEY",
            remedy="put the key into a variable and give the variable's name here; if a key was pasted, revoke it",
        )


def _check_external(name: str, service: Service) -> None:
    if not service.base_urls:
        raise ConfigError(
            "an external service needs a URL",
            field=f"{name}.base_url",
            allowed="http(s)://host[:port]/v1",
            remedy=f"set {name}.base_url=…, or choose a managed service: {name}=smollm2 or {name}=qwen3_32b",
        )
    for url in service.base_urls:
        _check_url(f"{name}.base_url", url)
    twice = next((url for url in service.base_urls if service.base_urls.count(url) > 1), None)
    if twice is not None:
        raise ConfigError(
            "this replica is named twice", field=f"{name}.base_url", found=twice, remedy="name each server once"
        )


def _check_url(field: str, url: str) -> None:
    parts = _split_url(field, url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("this is not an HTTP URL", field=field, found=shorten_value(url), allowed=_URL)
    if parts.query or parts.fragment:
        raise ConfigError(
            "a base URL may not have parameters: the path of each call is put after it",
            field=field,
            found=f"{_strip_url(parts)}?…",
            allowed=_URL,
            remedy=f"put what follows the ? into query: {field.rpartition('.')[0]}.query={{name: value}}",
        )


def _check_url_secrets(field: str, url: str) -> None:
    parts = _split_url(field, url)
    if parts.username or parts.password:
        raise ConfigError(
            "a URL may not hold a user or a password",
            field=field,
            found=f"{parts.scheme}://…@{parts.hostname}",
            remedy="use api_key_env or header_env",
        )
    names = [word.partition("=")[0] for word in re.split(r"[&;]", parts.query)]
    if any(map(is_credential_name, names)) or find_suspect_field([parts.path, parts.query, parts.fragment]) is not None:
        raise ConfigError(
            "a URL may not hold a key",
            field=field,
            found=f"{parts.scheme}://{parts.hostname}/… (the rest is not shown)",
            remedy="use api_key_env or header_env; if a key was pasted, revoke it",
        )


def _split_url(field: str, url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        ports = parts.port  # raises for one that is no number or beyond 65535
    except ValueError as failed:
        raise ConfigError(
            f"this is not an HTTP URL: {failed}", field=field, found=shorten_value(url), allowed=_URL
        ) from None
    if ports == 0:
        raise ConfigError(
            "this is not an HTTP URL: nothing listens at port 0", field=field, found=shorten_value(url), allowed=_URL
        )
    return parts


def _strip_url(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def _check_managed(name: str, service: Service) -> None:
    model = service.model or ""
    local = model.startswith(("embedded:", "/", "./", "../", "~"))
    if not local and not _REVISION.fullmatch(service.revision or ""):
        raise ConfigError(
            "a managed model is pinned by revision",
            field=f"{name}.revision",
            found=shorten_value(service.revision),
            allowed="40 hexadecimal digits (the commit of the model's repository)",
            remedy=f"set {name}.revision=…, or give a local directory as {name}.model",
        )
    if service.port in RESERVED_PORTS:
        raise ConfigError(
            "this port is in the range that NeMo-RL and Ray use",
            field=f"{name}.port",
            found=str(service.port),
            allowed="0 (a free port is picked), 1 to 1199, 9000 to 65535",
        )
