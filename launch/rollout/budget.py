"""The budget of a session: what it may send over the network before it begins no further row, or no further call of a
probe.
"""

from __future__ import annotations

from gavel.launch.config.schema import BudgetConfig
from gavel.models.calls.meter import Meter
from gavel.models.errors import ConfigError
from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.pool import ServicePool
from gavel.models.types import NO_TOKENS, ChatModel, ChatRequest, Completion, SpecialTokens, TellingTokens


def check_budget(budget: BudgetConfig) -> None:
    """Refuse a budget that nothing fits in.

    Raises:
        ConfigError: names the key.
    """
    for key in ("max_calls", "max_tokens"):
        value = getattr(budget, key)
        if value is not None and value < 1:
            raise ConfigError(
                "must be at least 1", field=f"budget.{key}", found=str(value), remedy="null sets no limit"
            )


def find_spent(budget: BudgetConfig, meter: Meter) -> str | None:
    """Say which limit was reached, or return None."""
    used = {"max_calls": meter.calls, "max_tokens": meter.tokens}
    reached = [
        f"budget.{key}={getattr(budget, key)}"
        for key, count in used.items()
        if count >= (getattr(budget, key) or count + 1)
    ]
    if not reached:
        return None
    return f"the budget is spent ({', '.join(reached)}): {meter.calls} calls and {meter.tokens} tokens in this session"


class Allowance:
    """Lets calls begin while a budget lasts; ``stopped`` says that it is spent and that a call was refused for it.

    Calls that run settle, so tokens may exceed the budget by theirs, and calls by what is tried again.
    """

    def __init__(self, budget: BudgetConfig) -> None:
        self._budget, self._begun = budget, 0
        self.stopped: str | None = None

    def bound_model(self, pool: ServicePool, name: str) -> BoundedModel:
        """Return a service's model whose calls are taken from the budget."""
        return BoundedModel(pool.get_model(name), self, pool.meter)

    def take_call(self, meter: Meter) -> None:
        """Let one more call begin.

        Raises:
            ModelFailure: ``cancelled``, for the budget is spent.
        """
        if (reached := find_spent(self._budget, Meter(max(self._begun, meter.calls), meter.tokens))) is not None:
            self.stopped = self.stopped or reached
            raise ModelFailure(FailureKind.CANCELLED, reached)
        self._begun += 1


class BoundedModel:
    """A model of a pool whose calls are taken from a budget. Implements ``ChatModel`` and ``TellingTokens``."""

    def __init__(self, model: ChatModel, allowance: Allowance, meter: Meter) -> None:
        self._model, self._allowance, self._meter = model, allowance, meter

    @property
    def name(self) -> str:
        """The service's name in the config."""
        return self._model.name

    async def complete(self, request: ChatRequest) -> Completion:
        """Answer one request; see ``ChatModel``.

        Raises:
            ModelFailure: as the model's; ``cancelled`` once the budget is spent.
        """
        self._allowance.take_call(self._meter)
        return await self._model.complete(request)

    async def read_special_tokens(self) -> SpecialTokens:
        """Return the special tokens of the model's tokenizer."""
        return await self._model.read_special_tokens() if isinstance(self._model, TellingTokens) else NO_TOKENS
