"""The words of a model call: message, reply, receipt, request, service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, runtime_checkable

from gavel.models.records import record

Role = Literal["system", "developer", "user", "assistant"]
CallRole = Literal["policy", "judge", "simulator"]


@record
class Usage:
    """Tokens as the server counted them; parts it does not tell are 0."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0


@record
class Reply:
    """What a model answered.

    ``finish_reason`` is one of ``gavel.models.calls.quirks.ENDED`` (``stop``, ``length``, ``tool_calls``,
    ``content_filter``), into which the servers' words are translated; any other word says that the reply was never
    finished. ``reasoning`` is the text a server keeps apart from the answer. ``think_prefilled`` says that the prompt
    already opened the thinking block, so the text starts inside it.
    """

    text: str
    finish_reason: str
    model: str
    usage: Usage | None = None
    reasoning: str | None = None
    think_prefilled: bool = False


@record
class Attempt:
    """One try within a call: ``outcome`` is ``ok`` or a failure kind, ``status`` the HTTP status if there was one."""

    outcome: str
    latency_s: float
    status: int | None = None
    reason: str | None = None


@record
class Receipt:
    """One model call that informed an outcome.

    ``call_id`` is derived from service, prompt, sampling and ``sample`` (16 hex digits), so equal calls have equal ids.
    Digests are ``sha256:<hex>`` over the messages sent and the text received. ``cache_hit``: answered from the cache;
    ``shared``: answered by another caller's identical call in flight.
    """

    call_id: str
    role: CallRole
    service: str
    requested_model: str
    prompt_digest: str
    served_model: str | None = None
    response_id: str | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    latency_s: float = 0.0
    attempts: tuple[Attempt, ...] = ()
    reply_digest: str | None = None
    cache_hit: bool = False
    shared: bool = False
    notes: tuple[str, ...] = ()


@record
class Message:
    """One message of a transcript; a policy's carries its reply, an environment's the receipts of the calls that made
    it.
    """

    role: Role
    content: str
    reply: Reply | None = None
    receipts: tuple[Receipt, ...] = ()


@record
class Sampling:
    """How a reply is drawn; ``None`` means not sent. ``extra`` goes into the request body as it is (``top_k``, …)."""

    temperature: float | None = None
    top_p: float | None = None
    max_response_tokens: int | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    stop: tuple[str, ...] = ()
    extra: Mapping[str, Any] | None = None


@record
class ResponseFormat:
    """A closed form for the reply: one of ``choice``, or JSON by ``json_schema``; exactly one is set."""

    choice: tuple[str, ...] = ()
    json_schema: Mapping[str, Any] | None = None


@record
class ChatRequest:
    """One call: ``sample`` numbers independent draws of one prompt, ``fresh`` forbids cache and sharing, ``prefix_key``
    names the prefix shared with other calls (routing over replicas). ``filtered``: a policy's reply that a content
    filter cut counts as a reply, also where nothing is left of it."""

    messages: tuple[Message, ...]
    role: CallRole
    sampling: Sampling = Sampling()
    response_format: ResponseFormat | None = None
    sample: int = 0
    fresh: bool = False
    prefix_key: str = ""
    filtered: bool = False


@record
class Completion:
    """A reply with the receipt of its call."""

    reply: Reply
    receipt: Receipt


class ChatModel(Protocol):
    """A model that can be called, however it is reached."""

    @property
    def name(self) -> str:
        """The service's name in the config."""
        ...

    async def complete(self, request: ChatRequest) -> Completion:
        """Answer one request.

        Raises:
            ModelFailure: no usable reply within the service's deadline and attempts.
        """
        ...


TOKENS_NOTE = "special tokens of the model's own tokenizer are neutralised"
"""Begins the note of a receipt whose prompt was made with them; without it, only the built-in list was used."""


@record
class SpecialTokens:
    """``tokens`` of a tokenizer, sorted; ``source`` says where they were read: names of files, or
    ``/tokenizer_info``.
    """

    tokens: tuple[str, ...] = ()
    source: str = ""

    @property
    def note(self) -> str:
        """What a receipt says of them; empty where there are none."""
        return f"{TOKENS_NOTE}: {len(self.tokens)} of {self.source}" if self.tokens else ""


NO_TOKENS = SpecialTokens()


@runtime_checkable
class TellingTokens(Protocol):
    """A model that knows the special tokens of its tokenizer."""

    async def read_special_tokens(self) -> SpecialTokens:
        """Return them; none where they cannot be known."""
        ...


@runtime_checkable
class Confirming(Protocol):
    """A model that keeps replies for equal calls, once their user says that they can be used."""

    def confirm(self, request: ChatRequest, completion: Completion) -> None:
        """Say that ``completion`` answered ``request`` usably: it was read without a fault."""
        ...
