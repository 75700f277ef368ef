"""One call while it runs: what is sent, its tries, and the receipt and the failure it ends with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gavel.models.calls.cache import StoredReply
from gavel.models.calls.incomplete import describe_incomplete
from gavel.models.calls.quirks import ENDED, FILTERED, LENGTH, STOP
from gavel.models.calls.retry import Refusal
from gavel.models.calls.served_names import is_same_model
from gavel.models.calls.wire import Decoded, RequestPlan, unwrap_choice
from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.receipts import compute_text_digest, derive_call_id, encode_messages
from gavel.models.service import get_config_key
from gavel.models.types import Attempt, ChatRequest, Completion, Receipt, Reply

UNNAMED = "the server does not name its model"


@dataclass(frozen=True, slots=True)
class CallKind:
    """What calls of one kind share: the encoded part of the body, the seed of the cache's key, whether the prompt opens
    the thinking block, and further names the server may give itself."""

    plan: RequestPlan
    cache_seed: bytes
    thinking_opened: bool = False
    served_as: tuple[str, ...] = ()


class Call:
    """One call of a service (``name``, ``model``), of one kind; ``clock`` gives monotonic seconds.

    Raises:
        ModelFailure: ``gavel:task_schema`` for a prompt that no JSON can carry.
    """

    __slots__ = (
        "_clock",
        "_name",
        "attempts",
        "kind",
        "messages",
        "model",
        "notes",
        "prompt_digest",
        "request",
        "started",
        "tried",
    )

    def __init__(self, name: str, model: str, request: ChatRequest, kind: CallKind, clock: Callable[[], float]) -> None:
        try:
            self.messages = encode_messages(request.messages)
        except TypeError as error:
            raise ModelFailure(FailureKind.TASK_SCHEMA, f"the prompt is no valid text: {error}") from None
        self._name, self._clock = name, clock
        self.model, self.request, self.kind = model, request, kind
        self.notes = kind.plan.notes
        self.prompt_digest = compute_text_digest(self.messages)
        self.attempts: list[Attempt] = []
        self.tried: tuple[int, ...] = ()  # the replicas, in order
        self.started = clock()

    def build_body(self) -> bytes:
        """Return the request's body."""
        return self.kind.plan.build_body(self.messages, self.request.sample)

    def rewrite_request(self, kind: CallKind) -> bool:
        """Let the call be written anew; tell whether its request is another one now."""
        changed = kind.plan.fields != self.kind.plan.fields
        if changed:
            own = self.notes[len(self.kind.plan.notes) :]
            self.kind, self.notes = kind, (*kind.plan.notes, *own)
        return changed

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a reply may carry: the one asked for, and those the config accepts; none: any.

        A policy is what is measured, under whatever name: receipts record it, and only ``served_as`` pins it.
        """
        if (
            self._name == self.request.role == "policy" and not self.kind.served_as
        ):  # simulators ask as a policy does, too
            return ()
        return (self.model, *self.kind.served_as)

    def add_note(self, text: str) -> None:
        """Add a note to the receipt."""
        self.notes = (*self.notes, text)

    def record_refusal(self, refusal: Refusal, latency: float) -> None:
        """Record a failed try of ``latency`` seconds."""
        self.attempts.append(Attempt(refusal.kind, latency, refusal.status, refusal.reason))

    def find_unfinished(self, decoded: Decoded) -> Refusal | None:
        """Return the failed try that a reply is which the engine did not finish, or None if it is finished (or another
        model's).
        """
        if decoded.finish_reason in ENDED or not _is_same_model(self.names, decoded):
            return None
        reason = f"the engine did not finish the reply: finish_reason is {decoded.finish_reason[:80] or 'missing'!r}"
        raw = decoded.text or decoded.reasoning
        return Refusal(FailureKind.PROVIDER_UNAVAILABLE, reason, retryable=True, status=200, raw=raw)

    def complete_reply(self, decoded: Decoded, latency: float) -> Completion:
        """Turn a well-formed reply into a completion.

        Raises:
            ModelFailure: the reply is there but unusable; asking again at once would not help.
        """
        text = decoded.text or decoded.refusal or ""
        if self.kind.plan.unwrap_choice:
            text = unwrap_choice(text)
        problem = _find_problem(self.request, self.names, decoded, text, get_config_key(self._name))
        if decoded.model is None:
            self.add_note(UNNAMED)
        if problem is not None:
            kind, reason = problem
            self.attempts.append(Attempt(kind, latency, 200, reason))
            raise ModelFailure(kind, reason, (self._make_receipt(decoded, text),), text or decoded.reasoning)
        self.attempts.append(Attempt("ok", latency, 200))
        reply = Reply(
            text,
            decoded.finish_reason,
            decoded.model or self.model,
            decoded.usage,
            decoded.reasoning,
            self.kind.thinking_opened,
        )
        return Completion(reply, self._make_receipt(decoded, text))

    def make_failure(self, kind: FailureKind, reason: str, raw: str | None = None) -> ModelFailure:
        """Return the failure of the whole call."""
        tries = f" ({len(self.attempts)} tries)" if len(self.attempts) > 1 else ""
        receipt = Receipt(
            self._derive_id(),
            self.request.role,
            self._name,
            self.model,
            self.prompt_digest,
            latency_s=self._clock() - self.started,
            attempts=tuple(self.attempts),
            notes=self.notes,
        )
        return ModelFailure(kind, reason + tries, (receipt,), raw)

    def from_cache(self, stored: StoredReply) -> Completion | None:
        """Return the completion of a stored reply, or None if this role cannot use it."""
        decoded = Decoded(
            stored.text, stored.finish_reason, stored.served_model, stored.response_id, stored.usage, stored.reasoning
        )
        if _find_problem(self.request, self.names, decoded, stored.text, get_config_key(self._name)) is not None:
            return None
        reply = Reply(
            stored.text, stored.finish_reason, stored.model, stored.usage, stored.reasoning, self.kind.thinking_opened
        )
        return Completion(reply, replace(self._make_receipt(decoded, stored.text), cache_hit=True))

    def share_completion(self, completion: Completion) -> Completion:
        """Return another caller's completion of the same call as ours."""
        receipt = completion.receipt
        ours = replace(receipt, role=self.request.role, shared=True, latency_s=self._clock() - self.started)
        decoded = Decoded(
            completion.reply.text,
            receipt.finish_reason or "",
            receipt.served_model,
            receipt.response_id,
            receipt.usage,
            None,
        )
        problem = _find_problem(self.request, self.names, decoded, completion.reply.text, get_config_key(self._name))
        if problem is not None:
            raise ModelFailure(*problem, (ours,), completion.reply.text)
        return Completion(completion.reply, ours)

    def _derive_id(self) -> str:
        return derive_call_id(self.kind.plan.seed, self.prompt_digest, self.request.sample)

    def _make_receipt(self, decoded: Decoded, text: str) -> Receipt:
        seed = self.kind.plan.compute_seed(self.request.sample)
        return Receipt(
            self._derive_id(),
            self.request.role,
            self._name,
            self.model,
            self.prompt_digest,
            decoded.model,
            decoded.response_id,
            decoded.finish_reason,
            decoded.usage,
            self._clock() - self.started,
            tuple(self.attempts),
            compute_text_digest(text.encode()),
            notes=self.notes if seed is None else (*self.notes, f"seed sent: {seed}"),
        )


def _find_problem(
    request: ChatRequest, names: Sequence[str], decoded: Decoded, text: str, key: str
) -> tuple[FailureKind, str] | None:
    """Say why a well-formed reply cannot be used, or None if it can: a policy's bad output is for the environment to
    grade.
    """
    if not _is_same_model(names, decoded):
        said = (decoded.model or "")[:120]
        accepted = ", ".join((*names[1:], said))
        advice = f"if that is the same model, accept its name: {key}.served_as=[{accepted}]"
        return FailureKind.IDENTITY_MISMATCH, f"asked for {names[0]!r}, the server answered as {said!r}; {advice}"
    role, finish = request.role, decoded.finish_reason
    if role == "policy" and request.filtered:
        return None
    if finish == FILTERED:
        return FailureKind.CONTENT_FILTERED, "the provider's content filter withheld the reply"
    if role == "policy":
        return None
    kind = FailureKind.JUDGE_UNPARSEABLE if role == "judge" else FailureKind.PROVIDER_UNAVAILABLE
    if finish != STOP:
        said = describe_incomplete(finish, text, decoded.reasoning, decoded.usage)
        limited = role == "simulator" and finish == LENGTH and request.sampling.max_response_tokens is not None
        return kind, said + (f"; raise its output limit, for example by {key}.thinking_tokens" if limited else "")
    if decoded.refusal is not None:  # beside a text, too: nobody knows which of them counts
        return kind, "the model refused to answer"
    if not text.strip():
        return kind, "the reply is empty" + ("; its text stands in the reasoning field" if decoded.reasoning else "")
    return None


def _is_same_model(names: Sequence[str], decoded: Decoded) -> bool:
    return not names or decoded.model is None or any(is_same_model(name, decoded.model) for name in names)
