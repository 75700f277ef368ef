"""What a training with TRL is made with: plain data, from the trainer's section of ``trainer.yaml``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gavel.models.codec import FieldError, decode, record
from gavel.models.errors import ConfigError


@record
class Extras:
    """``trainer.overrides`` of this trainer. ``temperature`` of the replies; ``threads`` of torch, part of what makes
    two runs equal; ``save_model`` keeps the trained weights in ``model/`` of the run (270 MB)."""

    temperature: float = 1.0
    threads: int = 2
    save_model: bool = False

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise FieldError("temperature", self.temperature, "more than 0")
        if self.threads < 1:
            raise FieldError("threads", self.threads, "at least 1")


@record
class GrpoOptions:
    """A small GRPO training.

    A step is ``prompts_per_step`` prompts with ``generations_per_prompt`` replies each, and one update.
    """

    model: str
    seed: int
    prompts_per_step: int
    generations_per_prompt: int
    max_steps: int
    max_total_tokens: int
    max_new_tokens: int
    learning_rate: float
    extras: Extras = Extras()

    def __post_init__(self) -> None:
        for name, least in (
            ("prompts_per_step", 1),
            ("generations_per_prompt", 2),
            ("max_steps", 1),
            ("max_new_tokens", 1),
        ):
            if getattr(self, name) < least:
                raise FieldError(name, getattr(self, name), f"at least {least}")
        if self.max_new_tokens >= self.max_total_tokens:
            raise FieldError(
                "max_new_tokens", self.max_new_tokens, f"less than max_total_tokens, {self.max_total_tokens}"
            )


UNUSED: Mapping[str, tuple[Any, str]] = {
    "async_rollouts": (False, "replies of a step are drawn together"),
    "recipe": (None, "recipes are NeMo-RL's"),
    "command": ([], "it is for trainer.kind=command"),
    "val_period": (10, "there is no validation"),
    "check_workers": (0, "programs that check replies run in processes beside the trainer"),
}
"""Options of other trainers that this one has no use for: their neutral value, and why."""


def read_options(trainer: Mapping[str, Any], seed: int) -> GrpoOptions:
    """Read the ``trainer`` section of ``trainer.yaml``.

    Raises:
        ConfigError: a value that cannot be; names the key.
    """
    for failed in find_unused(trainer):
        raise failed
    names = set(GrpoOptions.__dataclass_fields__) - {"seed", "extras"}
    values = {name: trainer[name] for name in names if name in trainer}
    options: GrpoOptions = decode(GrpoOptions, {**values, "seed": seed}, prefix="trainer", error=ConfigError)
    extras = decode(Extras, dict(trainer.get("overrides") or {}), prefix="trainer.overrides", error=ConfigError)
    return GrpoOptions(**{name: getattr(options, name) for name in (*names, "seed")}, extras=extras)


def find_unused(trainer: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Yield an error for each option that is set and would be ignored."""
    for name, (neutral, why) in UNUSED.items():
        if trainer.get(name, neutral) != neutral:
            yield ConfigError(
                "this trainer has no use for this option",
                field=f"trainer.{name}",
                found=str(trainer[name]),
                allowed=str(neutral),
                remedy=why,
            )
