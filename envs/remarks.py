"""What a run says at its end of the policy's replies, in any environment: most of them empty, hidden or cut is a
setting, no skill.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from gavel.envs.endings import is_cut
from gavel.envs.types import Result
from gavel.models.calls.quirks import FILTERED, finish_word
from gavel.models.calls.served_names import is_same_model
from gavel.models.failures import FailureKind


@dataclass(slots=True)
class ReplyCounts:
    """Counts the policy's replies: ``replies`` of graded rows; ``hidden`` have text in the reasoning field only,
    ``empty`` have none at all, ``cut`` ended at a limit of tokens, ``withheld`` are what a content filter left;
    ``names`` counts the served names that are not the one asked for."""

    replies: int = 0
    hidden: int = 0
    empty: int = 0
    cut: int = 0
    withheld: int = 0
    names: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        """Count the replies of one graded row."""
        for reply in (message.reply for message in result.transcript.messages):
            if reply is None:
                continue
            silent = not reply.text.strip()
            self.replies += 1
            if finish_word(reply.finish_reason) == FILTERED:  # that explains why it is empty
                self.withheld += 1
                continue
            self.hidden += silent and bool(reply.reasoning)
            self.empty += silent and not reply.reasoning
            self.cut += is_cut(reply)
        for receipt in result.receipts:
            served = receipt.served_model
            if receipt.role == "policy" and served is not None and not is_same_model(receipt.requested_model, served):
                self.names[receipt.requested_model, served] += 1

    def describe(self) -> tuple[str, ...]:
        """Return a line for each thing that holds for most replies, and one for each further name the policy was served
        under.
        """
        share = f"of {self.replies} replies of the policy"
        found = (
            (
                self.hidden,
                f"{self.hidden} {share} have text in the reasoning field only, so they hold no answer: the server's "
                f"reasoning parser "
                "takes it for thinking (vLLM's --reasoning-parser, SGLang's too; "
                "policy.engine_args.reasoning_parser here), "
                "or the limit policy.sampling.max_response_tokens "
                "ended the thinking",
            ),
            (
                self.empty,
                f"{self.empty} {share} are empty: look at the server's chat template and stop words, and at "
                f"policy.sampling",
            ),
            (
                self.cut,
                f"{self.cut} {share} were cut at their limit, so they count as unfinished: raise "
                f"policy.sampling.max_response_tokens "
                "(and policy.thinking_tokens for a model that thinks)",
            ),
        )
        names = tuple(
            f"the policy answered as {served!r} where {asked!r} was asked for ({count} calls); "
            f"policy.served_as=[{served}] pins it"
            for (asked, served), count in sorted(self.names.items())
        )
        filtered = (
            f"{self.withheld} {share} were withheld by the provider's content filter and are graded as no answer",
        )
        most = (line for count, line in found if 2 * count > self.replies)
        return (*most, *(filtered if self.withheld else ()), *names)


def describe_filtered(ungraded: Iterable[Result]) -> tuple[str, ...]:
    """Say how many rows a content filter took out of the figures, for they are no random ones."""
    failures = [row.outcome.failure for row in ungraded]
    count = sum(failure is not None and failure.kind is FailureKind.CONTENT_FILTERED for failure in failures)
    if not count:
        return ()
    return (
        f"{count} rows are in no figure because a provider's content filter refused a prompt or withheld a verdict: "
        f"what it flags "
        "is no random part of the tasks; another service, or its filter's settings, grades them",
    )
