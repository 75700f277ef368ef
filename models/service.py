"""A service: a model that can be called, by name; either reached at a URL or served by us."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from gavel.models.codec import compute_digest, record
from gavel.models.types import Sampling

OMITTED = ("temperature", "top_p", "max_response_tokens", "seed", "stop", "reasoning_effort")
"""Fields of a request that a service may leave out, by their names in a sampling."""

_KEYS = {"policy": "policy", "general": "judge"}
RESERVED_PORTS = range(1200, 9000)
"""NeMo-RL and Ray use ports of this range; a managed server stays out of it."""


NO_MODEL = "judge.invalid"
"""The host that stands for no model at all, as in ``judge=none``: no such name can ever be found (RFC 2606)."""


@record
class Timeout:
    """Seconds: ``connect`` until a connection stands, ``total`` for one attempt."""

    connect: float = 10.0
    total: float = 300.0


@record
class Price:
    """What a service asks for a million tokens, in ``currency`` (any word, or none): ``cached`` for those of a prompt
    that its prefix cache held (None: as ``input``). Thinking counts as output."""

    input: float
    output: float
    cached: float | None = None
    currency: str | None = None

    def compute_cost(self, prompt: int, completion: int, cached: int = 0) -> float:
        """Return what these tokens cost; ``cached`` are part of ``prompt``."""
        held = self.input if self.cached is None else self.cached
        return ((prompt - cached) * self.input + cached * held + completion * self.output) / 1_000_000


@record
class Service:
    """How a model is reached (``mode=external``) or served (``mode=managed``).

    Both: ``model`` is the name asked for; ``api`` the protocol; ``sampling`` what a policy's replies are drawn with (a
    judge's comes from its rubric); ``max_in_flight``, ``rpm``, ``tpm``, ``timeout``, ``deadline`` (seconds for one call
    with all its attempts) and ``attempts`` bound the calls; ``max_context_length`` in tokens. ``thinking_opened``: the
    chat template opens the thinking block (``<think>`` is the prompt's last word), so a reply without its closing tag
    has no answer. ``min_replicas``: with fewer replicas alive, calls fail at once. ``cache``: keep verdicts that could
    be read, and answer equal calls at temperature 0 from them, in this run and later ones. How requests are written,
    whoever makes them: ``max_tokens_field`` names the output limit (None: by the model's name, or as the server says);
    ``omit`` are fields that are never sent (of ``OMITTED``); ``response_format`` is how a closed form of reply is asked
    for (``tgi``: text-generation-inference's own; ``none``: not at all); ``thinking_tokens`` are added to every output
    limit, for a model that thinks first; ``extra_body`` goes into each request as it is. External: ``base_url`` ends
    before ``/chat/completions``; a list names replicas of one model; ``api_key_env`` names the variable that holds the
    key (or several, the first one set wins), ``key_header`` the header it goes into (None: ``Authorization``, as a
    bearer); ``query`` holds parameters of the URL (``api-version``); ``served_as`` are further names that the server
    may call the model by; ``header_env`` maps headers that hold credentials to variables. ``price`` is what its tokens
    cost, for the sums of runs and dry runs; it decides no reply. Managed: ``revision`` is 40 hex digits unless
    ``model`` is a local directory or ``embedded:<name>``; ``python`` is the interpreter that has vLLM; ``cpu`` asks for
    the CPU build; ``port`` 0 picks a free one.
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
    key_header: str | None = None
    query: Mapping[str, str] | None = None
    served_as: tuple[str, ...] = ()
    sampling: Sampling = Sampling()
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = None
    omit: tuple[str, ...] = ()
    response_format: Literal["json_schema", "json_object", "tgi", "none"] | None = None
    thinking_tokens: int = 0
    extra_body: Mapping[str, Any] | None = None
    max_in_flight: int = 64
    rpm: int | None = None
    tpm: int | None = None
    price: Price | None = None
    timeout: Timeout = Timeout()
    deadline: float = 600.0
    attempts: int = 4
    min_replicas: int = 1
    cache: bool = False
    max_context_length: int | None = None
    thinking_opened: bool = False
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
    def is_none(self) -> bool:
        """Whether this is no model at all (``judge=none``), which whoever asks it is told."""
        return bool(self.base_urls) and all(urlsplit(url).hostname == NO_MODEL for url in self.base_urls)

    @property
    def identity(self) -> str:
        """``sha256:<hex>`` of what decides the replies: the model, its revision and how it computes; not URLs, ports,
        limits.
        """
        written = [sorted(self.omit), self.response_format, self.thinking_tokens, self.extra_body]
        return compute_digest(
            [
                self.model,
                self.revision,
                self.dtype,
                self.quantization,
                self.chat_template_kwargs,
                self.max_context_length,
                self.api,
                # What is not set is left out: services without it keep their digest.
                *(("thinking_opened",) if self.thinking_opened else ()),
                *(written if any(written) else ()),
            ]
        )


def get_config_key(name: str) -> str:
    """Return the key of the config at which a verb's service stands: the service ``general`` is the config's
    ``judge``.
    """
    return _KEYS.get(name, f"services.{name}")


def get_display_name(name: str) -> str:
    """Return what tables call a service: as the user wrote it, so ``general`` is ``judge``."""
    return _KEYS.get(name, name)
