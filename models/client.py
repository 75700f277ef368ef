"""The chat client: one named service, called with bounded waits, tries and receipts."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from types import TracebackType
from typing import Self

from gavel.models.errors import ConfigError
from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.quirks import same_model
from gavel.models.receipts import call_id, derive_call_id, encode_messages, text_digest
from gavel.models.retry import (
    TRANSPORT_ERRORS,
    Backoff,
    Refusal,
    classify_error_body,
    classify_exception,
    classify_status,
    parse_retry_after,
)
from gavel.models.service import Service
from gavel.models.transport import Answered, OversizedBody, Transport
from gavel.models.types import Attempt, ChatRequest, Completion, Receipt, Reply, ResponseFormat, Sampling
from gavel.models.wire import BadBody, Decoded, Plan, decode_body, error_text, make_plan, unwrap_choice

RAW_LIMIT = 20_000
"""Characters of a bad body that a failure keeps."""

_PATHS = {"chat_completions": "/chat/completions", "responses": "/responses"}
_PLANS = 256  # kinds of calls whose encoded part is remembered

__all__ = ["ChatClient", "call_id"]


class ChatClient:
    """Calls one service; implements ``ChatModel``. Safe to share between tasks; also usable from a second event loop.

    Args:
        name: the service's name in the config.
        service: how it is reached; credentials are read from its variables now.
        base_urls: where a managed service listens (``http://host:port/v1``), one per replica; external: None.
        model_name: the name the server knows the model by; None: ``service.model``.
        vllm: whether the server is a vLLM (decides how a choice is asked for); None: a managed one is.
        backoff: the waits between tries.
        rng: draws the waits; None: seeded by the system.
        clock: monotonic seconds.

    Raises:
        ConfigError: no URL, or a credential's variable is not set.
    """

    def __init__(
        self, name: str, service: Service, *, base_urls: Sequence[str] | None = None, model_name: str | None = None,
        vllm: bool | None = None, backoff: Backoff | None = None, rng: Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        bases = list(base_urls) if base_urls is not None else [service.base_url] if service.base_url else []
        if not bases:
            raise ConfigError(
                "there is no URL to call", field=f"{name}.base_url", remedy="start the managed service first, or set base_url"
            )
        self._name, self._service = name, service
        self._model = model_name or service.model or ""
        self._vllm = service.mode == "managed" if vllm is None else vllm
        self._urls = [base.rstrip("/") + _PATHS[service.api] for base in bases]
        self._responses = service.api == "responses"
        self._backoff, self._rng, self._clock = backoff or Backoff(), rng or Random(), clock
        self._transport = Transport(name, service, self._urls)
        self._plans: dict[tuple[int, int], tuple[Sampling, ResponseFormat | None, Plan]] = {}
        self._turn = 0

    @property
    def name(self) -> str:
        """The service's name in the config."""
        return self._name

    @property
    def service(self) -> Service:
        """The service as configured."""
        return self._service

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; calls in flight and later ones end with ``shutdown``."""
        await self._transport.close()

    async def complete(self, request: ChatRequest) -> Completion:
        """Answer one request; see ``ChatModel``.

        For a policy, a reply that is empty or cut off is a reply. A judge's or simulator's must be complete and not empty.

        Raises:
            ModelFailure: no usable reply within the deadline and the attempts; its receipt lists every try.
        """
        plan = self._plan(request.sampling, request.response_format)
        call = _Call(self._name, self._model, request, plan, self._clock)
        deadline = call.started + self._service.deadline
        failures = 0
        while True:
            result = await self._attempt(call, min(self._service.timeout.total, deadline - self._clock()), failures)
            if isinstance(result, Completion):
                return result
            failures += 1
            if not result.retryable or failures >= self._service.attempts:
                raise call.failure(result)
            wait = self._backoff.delay(failures, self._rng, result.retry_after)
            if self._clock() + wait >= deadline:
                late = f"{result.reason} (no time left for another try: deadline {self._service.deadline:g} s)"
                raise call.failure(replace(result, reason=late))
            await asyncio.sleep(wait)

    def _plan(self, sampling: Sampling, response_format: ResponseFormat | None) -> Plan:
        key = (id(sampling), id(response_format))
        known = self._plans.get(key)
        if known is not None:
            return known[2]
        if len(self._plans) >= _PLANS:
            self._plans.clear()
        plan = make_plan(self._service, self._model, sampling, response_format, vllm=self._vllm)
        self._plans[key] = (sampling, response_format, plan)  # holds both, so that their ids stay theirs
        return plan

    def _url(self, prefix_key: str, failures: int) -> str:
        """Choose a replica: calls that share a prefix go to one, others in turn; each further try goes to the next."""
        if len(self._urls) == 1:
            return self._urls[0]
        self._turn += 1
        first = zlib.crc32(prefix_key.encode()) if prefix_key else self._turn
        return self._urls[(first + failures) % len(self._urls)]

    async def _attempt(self, call: _Call, timeout: float, failures: int) -> Completion | Refusal:
        began = self._clock()
        try:
            # Never 0, which would mean no limit at all.
            answered = await self._transport.post(self._url(call.request.prefix_key, failures), call.body, max(timeout, 0.001))
            decoded = self._read(call, answered)
        except TRANSPORT_ERRORS as error:
            decoded = self._broken(error)
        latency = self._clock() - began
        if isinstance(decoded, Refusal):
            call.attempts.append(Attempt(decoded.kind, latency, decoded.status, decoded.reason))
            return decoded
        return call.settle(decoded, latency)

    def _broken(self, error: BaseException) -> Refusal:
        if isinstance(error, OversizedBody):
            return Refusal(FailureKind.PROVIDER_UNAVAILABLE, str(error), retryable=False)
        if self._transport.closed:
            return Refusal(FailureKind.SHUTDOWN, "the client is closed", retryable=False)
        refusal = classify_exception(error)
        return replace(refusal, reason=self._transport.redact(refusal.reason))

    def _read(self, call: _Call, answered: Answered) -> Decoded | Refusal:
        role = call.request.role
        if answered.status != 200:
            refusal = classify_status(answered.status, self._transport.redact(error_text(answered.body)), role)
            return replace(refusal, retry_after=parse_retry_after(answered.headers, time.time()))
        try:
            return decode_body(answered.body, responses=self._responses)
        except BadBody as bad:
            raw = self._transport.redact(answered.body[: 4 * RAW_LIMIT].decode("utf-8", "replace"))[:RAW_LIMIT]
            if bad.error is not None:
                return replace(classify_error_body(bad.code, self._transport.redact(bad.error)[:300], role), raw=raw)
            kind = answered.headers.get("Content-Type", "none")
            return Refusal(
                FailureKind.PROVIDER_UNAVAILABLE, f"{bad.reason} (content type {kind[:60]})", retryable=True, status=200, raw=raw
            )


class _Call:
    """One call while it runs: what is sent, and what its receipt will say."""

    __slots__ = ("_clock", "_name", "_plan", "attempts", "body", "model", "prompt_digest", "request", "started")

    def __init__(self, name: str, model: str, request: ChatRequest, plan: Plan, clock: Callable[[], float]) -> None:
        try:
            messages = encode_messages(request.messages)
        except TypeError as error:
            raise ModelFailure(FailureKind.TASK_SCHEMA, f"the prompt is no valid text: {error}") from None
        self._name, self._plan, self._clock = name, plan, clock
        self.model, self.request = model, request
        self.body = plan.body(messages)
        self.prompt_digest = text_digest(messages)
        self.attempts: list[Attempt] = []
        self.started = clock()

    def settle(self, decoded: Decoded, latency: float) -> Completion | Refusal:
        """Turn a well-formed reply into a completion, or say why it cannot be used.

        Raises:
            ModelFailure: the reply is there but unusable; asking again at once would not help.
        """
        text = decoded.text if decoded.text is not None else (decoded.refusal or "")
        if self._plan.unwrap_choice:
            text = unwrap_choice(text)
        reply = Reply(text, decoded.finish_reason, decoded.model or self.model, decoded.usage, decoded.reasoning)
        unusable = _unusable(self, decoded, text)
        if unusable is None:
            self.attempts.append(Attempt("ok", latency, 200))
            return Completion(reply, self._receipt(decoded, text))
        kind, reason = unusable
        self.attempts.append(Attempt(kind, latency, 200, reason))
        raise ModelFailure(kind, reason, (self._receipt(decoded, text),), text or decoded.reasoning)

    def failure(self, refusal: Refusal) -> ModelFailure:
        """Return the failure of the whole call."""
        tries = f" ({len(self.attempts)} tries)" if len(self.attempts) > 1 else ""
        return ModelFailure(refusal.kind, refusal.reason + tries, (self._receipt(None, None),), refusal.raw)

    def _receipt(self, decoded: Decoded | None, text: str | None) -> Receipt:
        request, notes = self.request, self._plan.notes
        if decoded is not None and decoded.model is None:
            notes = (*notes, "the server does not name its model")
        made = derive_call_id(self._plan.seed, self.prompt_digest, request.sample)
        took = self._clock() - self.started
        digest = None if text is None else text_digest(text.encode())
        if decoded is None:
            return Receipt(
                made, request.role, self._name, self.model, self.prompt_digest, latency_s=took, attempts=tuple(self.attempts),
                notes=notes,
            )  # fmt: skip
        return Receipt(
            made, request.role, self._name, self.model, self.prompt_digest, decoded.model, decoded.response_id, decoded.finish_reason,
            decoded.usage, took, tuple(self.attempts), digest, notes=notes,
        )  # fmt: skip


def _unusable(call: _Call, decoded: Decoded, text: str) -> tuple[FailureKind, str] | None:
    """Say why a well-formed reply cannot be used, or None if it can."""
    if decoded.model is not None and not same_model(call.model, decoded.model):
        return FailureKind.IDENTITY_MISMATCH, f"asked for {call.model!r}, the server answered as {decoded.model[:120]!r}"
    role, finish = call.request.role, decoded.finish_reason
    if role == "policy":
        withheld = FailureKind.PROVIDER_UNAVAILABLE, "the provider's content filter withheld the reply"
        return withheld if finish == "content_filter" else None
    kind = FailureKind.JUDGE_UNPARSEABLE if role == "judge" else FailureKind.PROVIDER_UNAVAILABLE
    if finish != "stop":
        return kind, f"the reply is not complete: finish_reason is {finish or 'missing'!r}"
    if decoded.text is None and decoded.refusal is not None:
        return kind, "the model refused to answer"
    if not text.strip():
        return kind, "the reply is empty" + ("; its text stands in the reasoning field" if decoded.reasoning else "")
    return None
