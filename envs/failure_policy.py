"""What an ungraded row does to a run: go on within a bound (``zero``), or stop at the first (``strict``)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from gavel.models.codec import FieldError, record


@record
class FailurePolicy:
    """``zero``: the row is recorded with ``fallback_reward`` 0.0, kept out of training and metrics, and the run goes on
    while the ungraded share of the last ``window`` rows, from the ``minimum``-th row on, is at most
    ``max_ungraded_fraction``. ``strict``: the run stops at the first ungraded row.
    """

    name: Literal["zero", "strict"] = "zero"
    max_ungraded_fraction: float = 0.05
    window: int = 200
    minimum: int = 50

    def __post_init__(self) -> None:
        if not 0.0 <= self.max_ungraded_fraction <= 1.0:
            raise FieldError("max_ungraded_fraction", self.max_ungraded_fraction, "0 to 1")
        if self.window < 1:
            raise FieldError("window", self.window, "at least 1")
        if not 1 <= self.minimum <= self.window:
            raise FieldError("minimum", self.minimum, f"1 to {self.window}, which is failure.window")


@dataclass
class FailureWatch:
    """Applies a failure policy to the rows of one run as they come in; ``newest`` is what its user last noted of an
    ungraded one.
    """

    policy: FailurePolicy
    newest: str = ""
    _recent: deque[bool] = field(default_factory=deque)

    def observe_result(self, *, graded: bool) -> str | None:
        """Count one finished row; return why the run must stop, or None."""
        self._recent.append(graded)
        if len(self._recent) > self.policy.window:
            self._recent.popleft()
        if self.policy.name == "strict":
            return None if graded else "failure=strict stops at the first ungraded row"
        ungraded, total = self._recent.count(False), len(self._recent)
        if total >= self.policy.minimum and ungraded > self.policy.max_ungraded_fraction * total:
            return (
                f"{ungraded} of the last {total} rows are ungraded, more than "
                f"max_ungraded_fraction={self.policy.max_ungraded_fraction:g} allows"
            )
        return None
