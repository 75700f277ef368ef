"""Why something was not graded: one table of failure kinds, and the errors that carry them.

The names are NeMo Gym 0.7's, so that logs can be mapped; kinds of our own stand in its extension form ``gavel:<kind>``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from gavel.models.codec import record

if TYPE_CHECKING:
    from gavel.models.types import Receipt

MAX_ATTEMPTS_PER_ROW = 3
"""Attempts at one row over all resumes, for kinds that are retried on resume."""


class FailureKind(StrEnum):
    """What failed; the value is what stands in files."""

    JUDGE_FAILED = "judge_failed"
    JUDGE_UNPARSEABLE = "judge_unparseable"
    VERIFIER_ERROR = "verifier_error"
    TRANSPORT_UNREACHABLE = "transport_unreachable"
    TRANSPORT_TIMEOUT = "transport_timeout"
    TRANSPORT_PEER_DROP = "transport_peer_drop"
    PROVIDER_UNAVAILABLE = "provider_unavailable"
    PROVIDER_QUOTA_EXHAUSTED = "provider_quota_exhausted"
    CANCELLED = "cancelled"
    SHUTDOWN = "shutdown"
    PERSISTENCE_FAILED = "persistence_failed"
    CONTEXT_OVERFLOW = "gavel:context_overflow"
    CONTENT_FILTERED = "gavel:content_filtered"
    SIMULATION_FAILED = "gavel:simulation_failed"
    EPISODE_CUT = "gavel:episode_cut"
    TASK_SCHEMA = "gavel:task_schema"
    LANGUAGE_UNSUPPORTED = "gavel:language_unsupported"
    IDENTITY_MISMATCH = "gavel:identity_mismatch"
    PANEL_SPLIT = "gavel:panel_split"


@record
class KindRule:
    """What is done about a kind: retried within the call, retried on resume, or neither (terminal)."""

    retried_in_call: bool
    retried_on_resume: bool
    meaning: str

    @property
    def terminal(self) -> bool:
        """Whether no later attempt can help."""
        return not self.retried_on_resume


_K = FailureKind
KINDS: dict[FailureKind, KindRule] = {
    _K.JUDGE_FAILED: KindRule(False, True, "the judge's call failed in a way the other kinds do not name"),
    _K.JUDGE_UNPARSEABLE: KindRule(True, True, "the judge replied off its contract: empty, cut off, or no verdict"),
    _K.VERIFIER_ERROR: KindRule(False, True, "our own grading code raised"),
    _K.TRANSPORT_UNREACHABLE: KindRule(True, True, "no connection could be made"),
    _K.TRANSPORT_TIMEOUT: KindRule(True, True, "no complete answer within the time limit"),
    _K.TRANSPORT_PEER_DROP: KindRule(True, True, "the connection broke before the answer was complete"),
    _K.PROVIDER_UNAVAILABLE: KindRule(True, True, "the server answered that it cannot serve now, or without an answer"),
    _K.PROVIDER_QUOTA_EXHAUSTED: KindRule(False, True, "quota, billing, key or account refused by the provider"),
    _K.CANCELLED: KindRule(False, True, "stopped by us because a sibling failed"),
    _K.SHUTDOWN: KindRule(False, True, "stopped by us because the run ended"),
    _K.PERSISTENCE_FAILED: KindRule(False, True, "the row could not be written"),
    _K.CONTEXT_OVERFLOW: KindRule(
        False, False, "the prompt and its answer do not fit the model's context, or a reply is longer than what is read"
    ),
    _K.CONTENT_FILTERED: KindRule(
        False, False, "a provider's content filter refused the prompt or withheld the judge's reply"
    ),
    _K.SIMULATION_FAILED: KindRule(False, True, "a simulator of the environment failed"),
    _K.EPISODE_CUT: KindRule(False, True, "the episode ended before it could be graded"),
    _K.TASK_SCHEMA: KindRule(False, False, "the task's row is not valid"),
    _K.LANGUAGE_UNSUPPORTED: KindRule(False, False, "the task needs a language that is not supported"),
    _K.IDENTITY_MISMATCH: KindRule(False, False, "the server is not the model that was asked for"),
    _K.PANEL_SPLIT: KindRule(False, False, "the members of a panel of judges do not agree"),
}


@record
class Failure:
    """Why an outcome is ungraded: ``stage`` is ``policy``, ``simulator``, ``judge``, ``verifier``, ``task`` or
    ``store``.
    """

    kind: FailureKind
    stage: str
    reason: str


class ModelFailure(Exception):
    """A model call that gave no usable reply.

    Args:
        kind: one of ``KINDS``.
        reason: one line for a person; never holds a secret.
        receipts: of the calls made, the failed one last.
        raw: the reply's text where there was one.
    """

    def __init__(
        self, kind: FailureKind, reason: str, receipts: tuple[Receipt, ...] = (), raw: str | None = None
    ) -> None:
        super().__init__(kind, reason, receipts, raw)
        self.kind, self.reason, self.receipts, self.raw = kind, reason, receipts, raw

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"
