"""What goes over the network, counted over any number of services; what a cache or another caller's call answered is
not.
"""

from __future__ import annotations

from dataclasses import dataclass

from gavel.models.types import Usage

BYTES_PER_TOKEN = 4
"""The declared estimate for servers that count no tokens."""


@dataclass(slots=True)
class Meter:
    """``calls``: requests sent, each further try counted; ``tokens``: of prompts and replies, as the servers counted
    them.
    """

    calls: int = 0
    tokens: int = 0

    def add_usage(self, usage: Usage | None, size: int) -> int | None:
        """Count a reply's tokens and return them; None where the server tells none: then ``size`` characters count by
        an estimate.
        """
        if usage is None:
            self.tokens += size // BYTES_PER_TOKEN
            return None
        used = usage.prompt_tokens + usage.completion_tokens
        self.tokens += used
        return used
