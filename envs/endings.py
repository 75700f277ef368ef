"""How a policy's reply ended, and what that means for its grade: one rule for every environment.

``stop``: graded. ``length``: cut off, no final answer. ``tool_calls``: the policy called a tool that nobody gave it, so
it has no final answer either. ``content_filter``: the provider withheld what the policy said, so it has none, whatever
is left of it. Anything else: the reply was never finished, which is the engine's failure, not the policy's, and is not
graded. The client turns such replies into failures itself; this guards against those that come another way (stored
rows, a trainer's engine).
"""

from __future__ import annotations

from gavel.envs.types import Finish, Outcome
from gavel.models.calls.quirks import FILTERED, LENGTH, STOP, TOOLS, finish_word
from gavel.models.failures import Failure, FailureKind, ModelFailure
from gavel.models.texts.textwork import LONGEST, describe_too_long
from gavel.models.types import Reply

_GRADED = (STOP, LENGTH, TOOLS, FILTERED)


def unfinished(reply: Reply) -> Finish | None:
    """Return the ungraded end of a reply that was never finished or is longer than what is read, or None for one that
    can be graded.
    """
    if (length := len(reply.text)) > LONGEST:
        return Finish(Outcome("", failure=Failure(FailureKind.CONTEXT_OVERFLOW, "verifier", describe_too_long(length))))
    if reply.finish_reason in _GRADED or finish_word(reply.finish_reason) in _GRADED:
        return None
    reason = f"the policy's reply was not finished: finish_reason is {reply.finish_reason[:80] or 'missing'!r}"
    return Finish(Outcome("", failure=Failure(FailureKind.PROVIDER_UNAVAILABLE, "policy", reason)))


def end_failed_call(failed: ModelFailure) -> Finish:
    """Return the ungraded end of a transition whose judge or simulator failed; the receipts of its calls are kept."""
    stage = "simulator" if failed.kind is FailureKind.SIMULATION_FAILED else "judge"
    return Finish(
        Outcome("", failure=Failure(failed.kind, stage, make_encodable(failed.reason))), receipts=failed.receipts
    )


def make_encodable(text: str) -> str:
    """Return a text that can be stored and sent: half of a surrogate pair, which no JSON carries, becomes ``?``."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def is_cut(reply: Reply) -> bool:
    """Tell whether a reply ended at a limit of tokens."""
    return finish_word(reply.finish_reason) == LENGTH


def is_empty(reply: Reply) -> bool:
    """Tell whether a reply is no answer whatever its text: it ended in the call of a tool, or a filter withheld it."""
    return finish_word(reply.finish_reason) in (TOOLS, FILTERED)
