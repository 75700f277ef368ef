"""How a reply ended, from its token ids: NeMo-RL gives an environment text only, from which that cannot be told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gavel.envs.interfaces.nemo_rl.stamps import is_ours, with_ending
from gavel.models.texts.thinking import is_thinking_open

TAIL = 16
"""Prompt tokens in which a pre-filled opening tag must stand."""
_TEXTS_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Limits:
    """When a reply without an end token was cut: ``max_new_tokens`` of its own or ``max_total_tokens`` with its prompt.
    ``end_ids``:
    tokens that end a reply."""

    end_ids: frozenset[int]
    max_new_tokens: int
    max_total_tokens: int

    def finish_reason(self, prompt_tokens: int, reply: Sequence[int]) -> str:
        """Return ``stop`` or ``length``. A reply that neither ends nor reaches a limit was ended by a stop text."""
        if reply and reply[-1] in self.end_ids:
            return "stop"
        reached = len(reply) >= self.max_new_tokens or prompt_tokens + len(reply) >= self.max_total_tokens
        return "length" if reached else "stop"


def make_ending(limits: Limits, prompt_tokens: int, prompt_tail: str, reply: Sequence[int]) -> dict[str, Any]:
    """Return how a reply ended, as plain data.

    Args:
        limits: of the generation.
        prompt_tokens: the length of all that stands before the reply.
        prompt_tail: the text of the last ``TAIL`` tokens before the reply, control tokens included.
        reply: the reply's token ids.
    """
    return {
        "finish_reason": limits.finish_reason(prompt_tokens, reply),
        "think_prefilled": is_thinking_open(prompt_tail),
        "prompt_tokens": prompt_tokens,
        "completion_tokens": len(reply),
        "last_id": int(reply[-1]) if reply else None,
    }


def read_limits(policy: Mapping[str, Any], tokenizer: Any) -> Limits:
    """Read the limits of a NeMo-RL ``policy`` section; the tokenizer's end token counts where no stop tokens are
    named.
    """
    generation = policy["generation"]
    stops = [*(generation.get("stop_token_ids") or ()), tokenizer.eos_token_id]
    total = int(policy["max_total_sequence_length"])
    # The engine's own limit may be smaller than the trainer's.
    engine = (generation.get("vllm_cfg") or {}).get("max_model_len")
    return Limits(
        frozenset(int(token) for token in stops if token is not None),
        int(generation.get("max_new_tokens") or total),
        min(total, int(engine)) if engine else total,
    )


@dataclass(slots=True)
class Endings:
    """Tells each sample how its newest reply ended; wraps ``calculate_rewards``."""

    policy: Mapping[str, Any]
    tokenizer: Any = None
    _limits: Limits | None = None
    _texts: dict[tuple[int, ...], str] = field(default_factory=dict)

    def use_tokenizer(self, tokenizer: Any) -> None:
        """Use this tokenizer from now on."""
        if tokenizer is not self.tokenizer:
            self.tokenizer, self._limits = tokenizer, read_limits(self.policy, tokenizer)
            self._texts = {}

    def wrap_rewards(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``calculate_rewards`` with the endings put into the batch it gets."""

        def calculate_rewards(batch: Any, *args: Any, **options: Any) -> Any:
            if any(is_ours(info) for info in batch["extra_env_info"]):
                batch = batch.copy()
                batch["extra_env_info"] = [
                    with_ending(info, self._make_ending(log)) if is_ours(info) else info
                    for info, log in zip(batch["extra_env_info"], batch["message_log"], strict=True)
                ]
            return original(batch, *args, **options)

        return calculate_rewards

    def _make_ending(self, log: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        assert self._limits is not None, "a tokenizer is known before any reply"
        *before, reply = log
        prompt_tokens = sum(len(message["token_ids"]) for message in before)
        tail = self._decode_prompt(tuple(before[-1]["token_ids"][-TAIL:].tolist()))
        return make_ending(self._limits, prompt_tokens, tail, reply["token_ids"].tolist())

    def _decode_prompt(self, ids: tuple[int, ...]) -> str:
        """Decode the end of a prompt; the prompts of a step end alike."""
        if (known := self._texts.get(ids)) is not None:
            return known
        if len(self._texts) >= _TEXTS_KEPT:
            self._texts = {}
        text = str(self.tokenizer.decode(list(ids), skip_special_tokens=False))
        self._texts[ids] = text
        return text
