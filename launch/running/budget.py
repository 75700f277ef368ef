"""The budget of a session: what it may send over the network before it begins no further row."""

from __future__ import annotations

from gavel.launch.schema import BudgetConfig
from gavel.models.errors import ConfigError
from gavel.models.meter import Meter


def check_budget(budget: BudgetConfig) -> None:
    """Refuse a budget that nothing fits in.

    Raises:
        ConfigError: names the key.
    """
    for key in ("max_calls", "max_tokens"):
        value = getattr(budget, key)
        if value is not None and value < 1:
            raise ConfigError("must be at least 1", field=f"budget.{key}", found=str(value), remedy="null sets no limit")


def spent(budget: BudgetConfig, meter: Meter) -> str | None:
    """Say which limit was reached, or return None."""
    used = {"max_calls": meter.calls, "max_tokens": meter.tokens}
    reached = [f"budget.{key}={getattr(budget, key)}" for key, count in used.items() if count >= (getattr(budget, key) or count + 1)]
    if not reached:
        return None
    return f"the budget is spent ({', '.join(reached)}): {meter.calls} calls and {meter.tokens} tokens in this session"
