"""Equal calls in flight at the same time are made once; if the one who makes it is cancelled, the next one in line
makes it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import Enum, auto
from typing import Generic, TypeVar

from gavel.models.failures import ModelFailure

T = TypeVar("T")


class _Turn(Enum):
    """What a waiting caller gets in place of a result, which may be any value, None too."""

    LEAD = auto()


class SingleFlight(Generic[T]):
    """Shares results between equal calls of one event loop; a failure (``ModelFailure``) is shared like a result."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, deque[asyncio.Future[T | _Turn]]] = {}

    async def run_once(self, key: bytes, work: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
        """Return the result for ``key``, and whether another caller's work gave it.

        Raises:
            ModelFailure: of the work, whoever did it.
        """
        waiting = self._waiting.get(key)
        if waiting is None:
            self._waiting[key] = deque()
            return await self._lead_work(key, work), False
        turn: asyncio.Future[T | _Turn] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            result = await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None and turn.result() is _Turn.LEAD:
                self._hand_over(key)  # the lead had just come to us
            raise
        if isinstance(result, _Turn):
            return await self._lead_work(key, work), False
        return result, True

    async def _lead_work(self, key: bytes, work: Callable[[], Awaitable[T]]) -> T:
        try:
            result = await work()
        except ModelFailure as failure:
            for turn in self._waiting.pop(key):
                if not turn.done():
                    # A copy for each: a raised exception collects the traceback of its raiser.
                    shared = tuple(replace(receipt, shared=True) for receipt in failure.receipts)
                    turn.set_exception(ModelFailure(failure.kind, failure.reason, shared, failure.raw))
            raise
        except BaseException:
            self._hand_over(key)
            raise
        for turn in self._waiting.pop(key):
            if not turn.done():
                turn.set_result(result)
        return result

    def _hand_over(self, key: bytes) -> None:
        waiting = self._waiting[key]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(_Turn.LEAD)
                return
        del self._waiting[key]
