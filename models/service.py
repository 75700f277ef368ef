"""A service: a model that can be called, by name; either reached at a URL or served by us."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from gavel.models.codec import digest, record
from gavel.models.errors import ConfigError, shorten
from gavel.models.types import Sampling

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REVISION = re.compile(r"[0-9a-f]{40}")
_CREDENTIAL_HEADER = re.compile(r"auth|api[-_]?key|token|secret|cookie", re.IGNORECASE)
_KEYS = {"policy": "policy", "general": "judge"}
RESERVED_PORTS = range(1200, 9000)
"""NeMo-RL and Ray use ports of this range; a managed server stays out of it."""


@record
class Timeout:
    """Seconds: ``connect`` until a connection stands, ``total`` for one attempt."""

    connect: float = 10.0
    total: float = 300.0


@record
class Service:
    """How a model is reached (``mode=external``) or served (``mode=managed``).

    Both: ``model`` is the name asked for; ``api`` the protocol; ``sampling`` what a policy's replies are drawn with (a judge's comes
    from its rubric); ``max_in_flight``, ``rpm``, ``tpm``, ``timeout``, ``deadline`` (seconds for one call with all its attempts) and
    ``attempts`` bound the calls; ``max_context_length`` in tokens.
    ``min_replicas``: with fewer replicas alive, calls fail at once. ``cache``: keep verdicts that could be read, and answer equal calls
    at temperature 0 from them, in this run and later ones.
    External: ``base_url`` ends before ``/chat/completions``; a list names replicas of one model; ``api_key_env`` names the variable
    that holds the key (or several, the first one set wins); ``header_env`` maps headers that hold credentials to variables.
    Managed: ``revision`` is 40 hex digits unless ``model`` is a local directory or ``embedded:<name>``; ``python`` is the interpreter
    that has vLLM; ``cpu`` asks for the CPU build; ``port`` 0 picks a free one.
    """

    mode: Literal["external", "managed"]
    model: str | None = None
    base_url: str | tuple[str, ...] | None = None
    revision: str | None = None
    api: Literal["chat_completions", "responses"] = "chat_completions"
    api_key_env: str | tuple[str, ...] | None = None
    default_headers: Mapping[str, str] | None = None
    header_env: Mapping[str, str] | None = None
    organization: str | None = None
    sampling: Sampling = Sampling()
    max_in_flight: int = 64
    rpm: int | None = None
    tpm: int | None = None
    timeout: Timeout = Timeout()
    deadline: float = 600.0
    attempts: int = 4
    min_replicas: int = 1
    cache: bool = False
    max_context_length: int | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None
    cpu: bool = False
    gpus: int = 1
    tensor_parallel_size: int | None = None
    replicas: int = 1
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_gb: float | None = None
    port: int = 0
    python: str | None = None
    startup_timeout: float = 1800.0
    engine_args: Mapping[str, Any] | None = None

    @property
    def key_variables(self) -> tuple[str, ...]:
        """The names of variables that may hold the API key, in order of preference."""
        if self.api_key_env is None:
            return ()
        return (self.api_key_env,) if isinstance(self.api_key_env, str) else self.api_key_env

    @property
    def base_urls(self) -> tuple[str, ...]:
        """The URLs of an external service, one per replica; empty if none is set."""
        if not self.base_url:
            return ()
        return (self.base_url,) if isinstance(self.base_url, str) else self.base_url

    @property
    def identity(self) -> str:
        """``sha256:<hex>`` of what decides the replies: the model, its revision and how it computes; not URLs, ports, limits."""
        return digest([
            self.model, self.revision, self.dtype, self.quantization, self.chat_template_kwargs, self.max_context_length, self.api,
        ])  # fmt: skip


def config_key(name: str) -> str:
    """Return the key of the config at which a verb's service stands: the service ``general`` is the config's ``judge``."""
    return _KEYS.get(name, f"services.{name}")


def check_service(name: str, service: Service) -> None:
    """Refuse what cannot work, before anything is started.

    Args:
        name: the service's key in the config; the keys in errors start with it.
        service: the service as configured.

    Raises:
        ConfigError: names the key, what was found (a suspected key is never shown), what is allowed and the remedy.
    """
    _check_secrets(name, service)
    if not service.model:
        raise ConfigError("no model is named", field=f"{name}.model", remedy=f"set {name}.model=… to the name the server serves")
    for key in ("max_in_flight", "attempts", "replicas", "min_replicas", "deadline", "startup_timeout"):
        if getattr(service, key) <= 0:
            raise ConfigError("must be positive", field=f"{name}.{key}", found=shorten(getattr(service, key)))
    (_check_external if service.mode == "external" else _check_managed)(name, service)
    replicas = len(service.base_urls) if service.mode == "external" else service.replicas
    if service.min_replicas > replicas:
        raise ConfigError(
            "there are not so many replicas", field=f"{name}.min_replicas", found=str(service.min_replicas), allowed=f"1 to {replicas}",
            remedy="name more servers: base_url=[URL,URL]" if service.mode == "external" else f"raise {name}.replicas",
        )  # fmt: skip


def _check_secrets(name: str, service: Service) -> None:
    for variable in service.key_variables:
        if not _VARIABLE.fullmatch(variable):
            raise ConfigError(
                "this is not the name of an environment variable", field=f"{name}.api_key_env",
                found=f"a text of {len(variable)} characters (not shown: it may be a key)",
                allowed="a name such as OPENAI_API_KEY",
                remedy="put the key into a variable and give the variable's name here; if a key was pasted, revoke it",
            )  # fmt: skip
    for header in service.default_headers or {}:
        if _CREDENTIAL_HEADER.search(header):
            raise ConfigError(
                "a header that holds a credential may not stand in a config", field=f"{name}.default_headers.{header}",
                remedy=f"give the variable that holds it: {name}.header_env.{header}=VARIABLE",
            )  # fmt: skip
    for header, variable in (service.header_env or {}).items():
        if not _VARIABLE.fullmatch(variable):
            raise ConfigError(
                "this is not the name of an environment variable", field=f"{name}.header_env.{header}",
                found="(not shown: it may be a credential)", allowed="a name such as GATEWAY_TOKEN",
            )  # fmt: skip


def _check_external(name: str, service: Service) -> None:
    if not service.base_urls:
        raise ConfigError(
            "an external service needs a URL", field=f"{name}.base_url", allowed="http(s)://host[:port]/v1",
            remedy=f"set {name}.base_url=…, or choose a managed service: {name}=smollm2 or {name}=qwen3_32b",
        )  # fmt: skip
    for url in service.base_urls:
        _check_url(f"{name}.base_url", url)
    twice = next((url for url in service.base_urls if service.base_urls.count(url) > 1), None)
    if twice is not None:
        raise ConfigError("this replica is named twice", field=f"{name}.base_url", found=twice, remedy="name each server once")


def _check_url(field: str, url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("this is not an HTTP URL", field=field, found=url, allowed="http(s)://host[:port]/v1")
    if parts.username or parts.password:
        raise ConfigError(
            "a URL may not hold a user or a password", field=field, found=f"{parts.scheme}://…@{parts.hostname}",
            remedy="use api_key_env or header_env",
        )  # fmt: skip


def _check_managed(name: str, service: Service) -> None:
    model = service.model or ""
    local = model.startswith(("embedded:", "/", "./", "../", "~"))
    if not local and not _REVISION.fullmatch(service.revision or ""):
        raise ConfigError(
            "a managed model is pinned by revision", field=f"{name}.revision", found=shorten(service.revision),
            allowed="40 hexadecimal digits (the commit of the model's repository)",
            remedy=f"set {name}.revision=…, or give a local directory as {name}.model",
        )  # fmt: skip
    if service.port in RESERVED_PORTS:
        raise ConfigError(
            "this port is in the range that NeMo-RL and Ray use", field=f"{name}.port", found=str(service.port),
            allowed="0 (a free port is picked), 1 to 1199, 9000 to 65535",
        )  # fmt: skip
