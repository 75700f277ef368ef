"""The chat client: one named service, called with bounded waits, admission, tries, cache and receipts."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from urllib.parse import urlencode, urlsplit

from gavel.models.calls.admission import Admission, Ticket
from gavel.models.calls.breaker import Breaker
from gavel.models.calls.cache import ReplyCache, StoredReply, is_cacheable, make_cache_key, make_cache_seed
from gavel.models.calls.call import Call, CallKind
from gavel.models.calls.context import ContextCheck
from gavel.models.calls.error_words import is_cut_reply
from gavel.models.calls.meter import Meter
from gavel.models.calls.pace import HINT_TEXT, Pace, read_pace
from gavel.models.calls.request_form import learn_form, make_form
from gavel.models.calls.retry import (
    TRANSPORT_ERRORS,
    Backoff,
    Refusal,
    classify_error_body,
    classify_exception,
    classify_status,
)
from gavel.models.calls.routing import Router, probe_urls
from gavel.models.calls.singleflight import SingleFlight
from gavel.models.calls.special_tokens import (
    ask_special_tokens,
    find_tokenizer_folder,
    make_tokenizer_url,
    read_special_tokens,
)
from gavel.models.calls.transport import Answered, OversizedBody, Transport
from gavel.models.calls.wire import CUT_REPLY, BadBody, Decoded, decode_body, make_plan, read_error_text
from gavel.models.closing import AsyncClosing
from gavel.models.errors import ConfigError
from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.receipts import call_id, encode_messages
from gavel.models.service import Service
from gavel.models.types import NO_TOKENS, ChatRequest, Completion, ResponseFormat, Sampling, SpecialTokens

RAW_LIMIT = 20_000
"""Characters of a bad body that a failure keeps."""

_PATHS = {"chat_completions": "/chat/completions", "responses": "/responses"}
_REFUSED_KINDS = frozenset((FailureKind.JUDGE_FAILED, FailureKind.PROVIDER_UNAVAILABLE))
_KINDS = 256  # kinds of calls whose encoded part is remembered

__all__ = ["ChatClient", "call_id"]


def _tell_nobody(line: str) -> None:
    pass


class ChatClient(AsyncClosing):
    """Calls one service; implements ``ChatModel``. One client stands for the whole service: its limits hold over all
    who share it.

    Safe to share between the tasks of an event loop, and usable again in a later loop; not from two threads at once.

    Args:
        name: the service's name in the config.
        service: how it is reached; credentials are read from its variables now.
        base_urls: where a managed service listens (``http://host:port/v1``), one per replica; external: None, its own
            ones.
        model_name: the name the server knows the model by; None: ``service.model``.
        vllm: whether the server is a vLLM (decides how a choice is asked for); None: a managed one is.
        engine: name and version of the server's software where known; part of the cache's key.
        cache: where replies that were confirmed are kept; None: nowhere. The caller closes it.
        tokenizer: folder of a managed service's tokenizer; None: looked for where ``find_tokenizer_folder`` does.
        meter: counts what goes over the network.
        progress: told when a replica leaves or comes back, and what a server will not take, one line each.
        key: where the service stands in the config, for errors; None: ``name``.
        backoff: the waits between tries.
        rng: draws the waits; None: seeded by the system.
        clock: monotonic seconds.

    Raises:
        ConfigError: no URL, or a credential's variable is not set.
    """

    def __init__(
        self,
        name: str,
        service: Service,
        *,
        base_urls: Sequence[str] | None = None,
        model_name: str | None = None,
        vllm: bool | None = None,
        engine: str = "",
        cache: ReplyCache | None = None,
        tokenizer: Path | None = None,
        meter: Meter | None = None,
        progress: Callable[[str], None] | None = None,
        key: str | None = None,
        backoff: Backoff | None = None,
        rng: Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        bases = list(service.base_urls if base_urls is None else base_urls)
        if not bases:
            raise ConfigError(
                "there is no URL to call",
                field=f"{key or name}.base_url",
                remedy="start the managed service first, or set base_url",
            )
        self._name, self._service = name, service
        self._model = model_name or service.model or ""
        self._vllm = service.mode == "managed" if vllm is None else vllm
        self._engine, self._cache, self._meter = engine, cache, meter or Meter()
        self._form, self._tell, self._key = make_form(service, self._model), progress or _tell_nobody, key or name
        path = _PATHS[service.api] + (f"?{urlencode(dict(service.query))}" if service.query else "")
        self._responses = service.api == "responses"
        self._backoff, self._rng, self._clock = backoff or Backoff(), rng or Random(), clock
        self._transport = Transport(
            key or name,
            service,
            [url for base in bases for url in (base.rstrip("/") + path, *probe_urls(base), make_tokenizer_url(base))],
        )
        self._router = Router(
            key or name,
            bases,
            path,
            least=service.min_replicas,
            capacity=service.max_in_flight,
            transport=self._transport,
            clock=clock,
            progress=progress,
        )
        self._host = urlsplit(bases[0]).hostname or ""
        self._context = ContextCheck(service, self._model, self._router.get_any_base, self._transport)
        pace = Pace(self._backoff, self._rng)
        self._admission = Admission(service.max_in_flight, service.rpm, service.tpm, clock, pace)
        self._breaker = Breaker()
        self._flights: SingleFlight[Completion] = SingleFlight()
        self._tokenizer = tokenizer or find_tokenizer_folder(service, os.environ)
        self._tokens: SpecialTokens | None = None
        self._token_flights: SingleFlight[SpecialTokens | None] = SingleFlight()
        self._kinds: dict[tuple[int, int], tuple[Sampling, ResponseFormat | None, CallKind]] = {}

    @property
    def name(self) -> str:
        """The service's name in the config."""
        return self._name

    @property
    def service(self) -> Service:
        """The service as configured."""
        return self._service

    @property
    def admission(self) -> Admission:
        """The service's admission point: calls in flight, waiting, and the limit now."""
        return self._admission

    @property
    def breaker(self) -> Breaker:
        """The service's circuit breaker."""
        return self._breaker

    @property
    def router(self) -> Router:
        """The service's replicas."""
        return self._router

    async def close(self) -> None:
        """Close every connection; calls in flight and later ones end with ``shutdown``."""
        await self._router.close()
        await self._transport.close()

    async def complete(self, request: ChatRequest) -> Completion:
        """Answer one request; see ``ChatModel``.

        For a policy, a reply that is empty, cut off, or a call of a tool is a reply. One that the engine did not finish
        (no finish reason, or a word like ``abort``) is a failed try, whoever asked. A judge's or simulator's must be
        complete and not empty. Equal calls share a reply, or get a confirmed one from the cache, where
        ``is_cacheable`` says so.

        Raises:
            ModelFailure: no usable reply within the deadline and the attempts; its receipt lists every try.
        """
        call = Call(
            self._name, self._model, request, self._get_kind(request.sampling, request.response_format), self._clock
        )
        if not is_cacheable(request) or call.kind.plan.fields.get("temperature", 1.0) != request.sampling.temperature:
            return await self._run_tries(
                call
            )  # a temperature that is not sent is the server's own, above 0 for all we know
        key = make_cache_key(call.kind.cache_seed, call.messages, request.sample)
        stored = self._cache.get(key) if self._cache is not None else None
        found = call.from_cache(stored) if stored is not None else None
        if found is not None:
            return found
        completion, shared = await self._flights.run_once(key, lambda: self._run_tries(call))
        return call.share_completion(completion) if shared else completion

    async def read_special_tokens(self) -> SpecialTokens:
        """Return the special tokens of the model's tokenizer; see ``TellingTokens``. What was found once is kept."""
        if self._tokens is None:
            found, _ = await self._token_flights.run_once(b"", self._find_tokens)
            if found is None:
                return NO_TOKENS
            self._tokens = found
        return self._tokens

    async def _find_tokens(self) -> SpecialTokens | None:
        if (
            self._tokenizer is not None
            and (found := await asyncio.to_thread(read_special_tokens, self._tokenizer)).tokens
        ):
            return found
        return await ask_special_tokens(self._transport, self._router.get_any_base())

    def confirm(self, request: ChatRequest, completion: Completion) -> None:
        """Say that the reply to ``request`` was usable (it parsed): equal calls may have it from the cache from now on.

        Does nothing without a cache, for a request that may not be cached, or for a reply that came from the cache.
        """
        if self._cache is None or not is_cacheable(request) or completion.receipt.cache_hit:
            return
        kind, reply, receipt = (
            self._get_kind(request.sampling, request.response_format),
            completion.reply,
            completion.receipt,
        )
        key = make_cache_key(kind.cache_seed, encode_messages(request.messages), request.sample)
        stored = StoredReply(
            reply.text,
            reply.finish_reason,
            reply.model,
            receipt.served_model,
            receipt.response_id,
            reply.usage,
            reply.reasoning,
        )
        self._cache.put(key, stored)

    def _get_kind(self, sampling: Sampling, response_format: ResponseFormat | None) -> CallKind:
        ids = (id(sampling), id(response_format))
        known = self._kinds.get(ids)
        if known is not None:
            return known[2]
        if len(self._kinds) >= _KINDS:
            self._kinds.clear()
        plan = make_plan(self._service, self._model, sampling, response_format, vllm=self._vllm, form=self._form)
        kind = CallKind(
            plan,
            make_cache_seed(self._service, self._engine, sampling, response_format),
            self._service.thinking_opened,
            self._service.served_as,
        )
        self._kinds[ids] = (sampling, response_format, kind)  # holds both, so that their ids stay theirs
        return kind

    async def _run_tries(self, call: Call) -> Completion:
        """Make the call: breaker, context, then tries, each admitted on its own."""
        self._check_breaker(call, peek=True)
        if not self._router.ring.whole:
            self._choose_replica(call)
        await self._check_context(call)
        tokens, failures, deadline, first = self._estimate_tokens(call), 0, 0.0, False
        refusals: list[Refusal] = []
        while True:
            ticket = self._admission.enter(tokens) or await self._wait_turn(call, tokens, deadline if first else None)
            # The deadline runs from the first admission: a long queue is no fault of the server.
            deadline = deadline or self._clock() + self._service.deadline
            result = await self._try_once(call, ticket, deadline)
            if isinstance(result, Completion):
                return result
            if self._rewrite_refused(call, result):
                continue
            first = not result.paced  # else it would keep those from being asked that the service may have room for
            if result.paced:
                refusals.append(result)
                # Nor is a wait for others a fault of the call: while the service answers anyone, the time runs from
                # that answer.
                deadline = max(deadline, self._admission.pace.answered_at + self._service.deadline)
                await self._keep_pace(call, refusals, deadline)
                continue
            failures += 1
            if not result.retryable or failures >= self._service.attempts:
                raise call.make_failure(result.kind, result.reason, result.raw)
            moves = not self._router.is_usable(call.tried[-1])  # another replica takes over, at once
            wait = 0.0 if moves else self._backoff.compute_delay(failures, self._rng)
            if self._clock() + wait >= deadline:
                if refusals and result.kind is FailureKind.TRANSPORT_TIMEOUT:  # of the moment that was left
                    raise self._make_late_failure(call, refusals[-1])
                raise call.make_failure(result.kind, f"{result.reason} ({self._late})", result.raw)
            await asyncio.sleep(wait)

    @property
    def _late(self) -> str:
        return f"no time left for another try: {self._key}.deadline={self._service.deadline:g} s"

    async def _keep_pace(self, call: Call, refusals: Sequence[Refusal], deadline: float) -> None:
        """Wait on a call's own account after refusals for too many requests; the pause of the service comes in the
        queue.
        """
        wait = self._backoff.compute_delay(len(refusals), self._rng) if refusals[-1].retry_after is None else 0.0
        now = self._clock()
        if now + max(wait, self._admission.pace.compute_wait(now)) >= deadline:
            raise self._make_late_failure(call, refusals[-1])
        await asyncio.sleep(wait)

    def _make_late_failure(self, call: Call, refusal: Refusal) -> ModelFailure:
        return call.make_failure(refusal.kind, f"{refusal.reason} ({self._late}; {self._slower})", refusal.raw)

    @property
    def _slower(self) -> str:
        return f"the service asks for less: set {self._key}.rpm to what it allows, or raise {self._key}.deadline"

    def _rewrite_refused(self, call: Call, refusal: Refusal) -> bool:
        """Rewrite a call whose form the server refused in plain words; tell whether it is another one now.

        It costs no attempt.
        """
        # Gateways also wrap the refusal of a provider into a 502, which would be tried again for nothing.
        if refusal.overloaded or refusal.trips or refusal.kind not in _REFUSED_KINDS:
            return False
        asked = call.request.sampling, call.request.response_format
        if call.rewrite_request(
            self._get_kind(*asked)
        ):  # another call has learned meanwhile; what was refused is no longer sent so
            return True
        lesson = learn_form(self._form, refusal.reason, call.kind.plan.fields)
        if lesson is None:
            return False
        self._form = lesson.form
        self._kinds.clear()
        self._tell(f"{self._key}: the server {lesson.told} (receipts say so)")
        return call.rewrite_request(self._get_kind(*asked))

    def _check_breaker(self, call: Call, *, peek: bool) -> None:
        """Fail at once where the breaker says so; ``peek`` leaves the role of the probe to one that is about to
        send.
        """
        if self._breaker.state == "closed" or (peek and self._breaker.is_ready(self._clock())):
            return
        refused = self._breaker.refuse_reason(self._clock())
        if refused is not None:
            raise call.make_failure(self._breaker.kind, refused)

    async def _check_context(self, call: Call) -> None:
        reserved = (call.request.sampling.max_response_tokens or 1) + self._service.thinking_tokens
        if self._context.is_sure_to_fit(call.request.messages, reserved):
            return
        problem, note = await self._context.find_problem(call.request.messages, call.messages, reserved)
        if note is not None:
            call.add_note(note)
        if problem is not None:
            raise call.make_failure(FailureKind.CONTEXT_OVERFLOW, problem)

    def _estimate_tokens(self, call: Call) -> float:
        if not self._admission.counts_tokens:
            return 0.0
        return len(call.messages) / 4 + (call.request.sampling.max_response_tokens or 0) + self._service.thinking_tokens

    async def _wait_turn(self, call: Call, tokens: float, until: float | None) -> Ticket:
        """Wait in the queue; ``until`` is the deadline of a call that tries again, before all others."""
        patience = self._service.deadline if until is None else until - self._clock()
        pause = self._admission.pace.compute_wait(self._clock())
        if pause >= patience:
            reason = f"not tried: the service asked to be left alone for {pause:.0f} s ({self._late}; {self._slower})"
            raise call.make_failure(FailureKind.PROVIDER_UNAVAILABLE, reason)
        try:
            return await self._admission.wait(tokens, max(patience, 0.0), first=until is not None)
        except TimeoutError:
            if self._admission.pace.refusals:
                reason = (
                    f"not admitted: the service refused everybody for {patience:.0f} s ({self._late}; {self._slower})"
                )
                raise call.make_failure(FailureKind.PROVIDER_UNAVAILABLE, reason) from None
            reason = f"not admitted: the queue of this service stood still for {patience:.0f} s"
            raise call.make_failure(FailureKind.TRANSPORT_TIMEOUT, reason) from None

    async def _try_once(self, call: Call, ticket: Ticket, deadline: float) -> Completion | Refusal:
        """Make one try and feed what came of it to the limit, the buckets and the breaker."""
        overloaded, good, used, refused = False, False, None, None
        try:
            self._check_breaker(call, peek=False)
            began = self._clock()
            replica = self._choose_replica(call)
            call.tried = (*call.tried, replica)
            outcome = await self._exchange_guarded(call, replica, min(self._service.timeout.total, deadline - began))
            latency = self._clock() - began
            if isinstance(outcome, Refusal):
                overloaded, refused = outcome.overloaded, outcome
                call.record_refusal(outcome, latency)
                return outcome
            used = self._meter.add_usage(outcome.usage, len(call.messages) + len(outcome.text or ""))
            if (unfinished := call.find_unfinished(outcome)) is not None:
                call.record_refusal(unfinished, latency)
                return unfinished
            good = True
            return call.complete_reply(outcome, latency)
        finally:
            self._admission.leave(ticket, overloaded=overloaded, good=good, used=used, refusal=refused)

    async def _exchange_guarded(self, call: Call, replica: int, timeout: float) -> Decoded | Refusal:
        """Exchange, and tell the breaker and the replicas what came of it, also where nothing did."""
        try:
            outcome = await self._exchange_body(call, replica, timeout)
        except BaseException:  # cancelled, or a fault of ours: passed on
            self._breaker.record_cancelled()
            raise
        if isinstance(outcome, Refusal):
            self._record_refusal(outcome)
            self._router.record_failure(replica, outcome)
        else:
            self._breaker.record_answer()
            self._router.record_answer(replica)
        return outcome

    def _record_refusal(self, refusal: Refusal) -> None:
        if refusal.trips:
            self._breaker.trip(refusal.reason, refusal.kind)
        elif refusal.broken:
            self._breaker.record_failure(self._clock(), refusal.reason, refusal.kind)
        else:
            self._breaker.record_answer()

    def _choose_replica(self, call: Call) -> int:
        """Choose a replica; a call fails at once where too few are alive."""
        replica = self._router.pick_replica(call.request.prefix_key, call.tried)
        if replica is None:
            raise call.make_failure(FailureKind.TRANSPORT_UNREACHABLE, f"not tried: {self._router.problem}")
        return replica

    async def _exchange_body(self, call: Call, replica: int, timeout: float) -> Decoded | Refusal:
        load = self._router.ring
        load.enter(replica)
        self._meter.calls += 1
        try:
            # Never 0, which would mean no limit at all.
            answered = await self._transport.post(self._router.get_url(replica), call.build_body(), max(timeout, 0.001))
        except TRANSPORT_ERRORS as error:
            return self._refuse_transport_error(error)
        finally:
            load.leave(replica)
        return self._read_answer(call, answered)

    def _refuse_transport_error(self, error: BaseException) -> Refusal:
        if isinstance(error, OversizedBody):
            return Refusal(FailureKind.PROVIDER_UNAVAILABLE, str(error), retryable=False)
        if self._transport.closed:
            return Refusal(FailureKind.SHUTDOWN, "the client is closed", retryable=False)
        refusal = classify_exception(error)
        return replace(refusal, reason=self._transport.redact_secrets(refusal.reason))

    def _read_answer(self, call: Call, answered: Answered) -> Decoded | Refusal:
        role = call.request.role
        if answered.status != 200:
            said = self._transport.redact_secrets(read_error_text(answered.body))
            if is_cut_reply(said):
                return CUT_REPLY
            refusal = classify_status(answered.status, said, role, self._host)
            return refusal.add_hint(_read_hint(answered))
        try:
            return decode_body(answered.body, responses=self._responses)
        except BadBody as bad:
            raw = self._transport.redact_secrets(answered.body[: 4 * RAW_LIMIT].decode("utf-8", "replace"))[:RAW_LIMIT]
            if bad.error is not None:
                if is_cut_reply(bad.error):
                    return CUT_REPLY
                refusal = classify_error_body(
                    bad.code, self._transport.redact_secrets(bad.error)[:300], role, self._host
                )
                return replace(refusal.add_hint(_read_hint(answered)), raw=raw)
            reason = f"{bad.reason} (content type {answered.headers.get('Content-Type', 'none')[:60]})"
            return Refusal(FailureKind.PROVIDER_UNAVAILABLE, reason, retryable=True, status=200, raw=raw)


def _read_hint(answered: Answered) -> float | None:
    return read_pace(answered.headers, answered.body[:HINT_TEXT].decode("utf-8", "replace"), time.time())
