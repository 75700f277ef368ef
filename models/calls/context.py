"""Whether a prompt and its answer fit the model's context, checked before anything is sent.

No token is shorter than a byte, so a short prompt is known to fit without a question. Where that is not enough, vLLM's
``/tokenize`` counts exactly. A server without it (404, 405, 501) is held to a declared estimate, and the receipt says
so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from gavel.models.calls.retry import TRANSPORT_ERRORS
from gavel.models.calls.transport import Transport
from gavel.models.service import Service
from gavel.models.types import Message

TEMPLATE_TOKENS = 512
MESSAGE_TOKENS = 16
"""Upper bounds on what a chat template adds: its own system prompt, and the marks of each message."""

NORMALISED_GROWTH = 3
"""Bytes of text outside ASCII that Unicode normalisation (NFC) may make of one."""

BYTES_PER_TOKEN = 4.0
"""The declared estimate for servers that do not count for us."""

ESTIMATED = f"context checked by an estimate of {BYTES_PER_TOKEN:g} bytes a token: the server has no /tokenize"
UNCHECKED = "context not checked: /tokenize did not answer"

_TOKENIZE_TIMEOUT = 30.0
_ABSENT = frozenset((404, 405, 501))
_NO_COUNT: tuple[type[Exception], ...] = (*TRANSPORT_ERRORS, orjson.JSONDecodeError, AttributeError)


def bound_tokens(messages: Sequence[Message]) -> int:
    """Return an upper bound on the tokens of a prompt."""
    texts = [message.content for message in messages]
    size = sum(
        len(text) if text.isascii() else NORMALISED_GROWTH * len(text.encode("utf-8", "surrogatepass"))
        for text in texts
    )
    return size + MESSAGE_TOKENS * len(texts) + TEMPLATE_TOKENS


class ContextCheck:
    """Checks the prompts of one service.

    Args:
        service: ``max_context_length`` None checks nothing.
        model: the name the server knows the model by.
        base_url: gives the base URL of a replica that lives; it ends in ``/v1``, and ``/tokenize`` stands beside that.
        transport: the service's.
    """

    def __init__(self, service: Service, model: str, base_url: Callable[[], str], transport: Transport) -> None:
        self._limit = service.max_context_length
        self._fixed: dict[str, Any] = {"model": model, "add_generation_prompt": True}
        if service.chat_template_kwargs:
            self._fixed["chat_template_kwargs"] = dict(service.chat_template_kwargs)
        self._base_url = base_url
        self._transport = transport
        self._absent = False

    def is_sure_to_fit(self, messages: Sequence[Message], reserved: int) -> bool:
        """Tell whether no count is needed; ``reserved`` tokens are kept for the answer."""
        return self._limit is None or bound_tokens(messages) + reserved <= self._limit

    async def find_problem(
        self, messages: Sequence[Message], encoded: bytes, reserved: int
    ) -> tuple[str | None, str | None]:
        """Count, and return why the call cannot fit (or None) and a note for the receipt (or None).

        Args:
            messages: the prompt.
            encoded: the same as JSON.
            reserved: tokens for the answer.
        """
        if self._limit is None:
            return None, None
        count, note = (None, None) if self._absent else await self._count_tokens(encoded)
        if count is None and note is None:
            size = sum(len(message.content.encode("utf-8", "replace")) for message in messages)
            count, note = int(size / BYTES_PER_TOKEN), ESTIMATED
        if count is None or count + reserved <= self._limit:
            return None, note
        about = "about " if note else ""
        return (
            f"{about}{count} tokens of prompt and {reserved} for the answer exceed max_context_length={self._limit}",
            note,
        )

    async def _count_tokens(self, encoded: bytes) -> tuple[int | None, str | None]:
        url = self._base_url().removesuffix("/v1") + "/tokenize"
        body = orjson.dumps(self._fixed)[:-1] + b',"messages":' + encoded + b"}"
        try:
            answered = await self._transport.post(url, body, _TOKENIZE_TIMEOUT)
            if answered.status in _ABSENT:
                self._absent = True
                return None, None
            count = orjson.loads(answered.body).get("count")
        except _NO_COUNT:
            return None, UNCHECKED  # the call itself will tell what is wrong with the server
        return (count, None) if isinstance(count, int) else (None, UNCHECKED)
