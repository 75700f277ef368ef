"""A model of a pool: its calls are counted, and end at once, instead of trying on, when its servers are ours and
die.
"""

from __future__ import annotations

import asyncio

from gavel.models.calls.client import ChatClient
from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.receipts import call_id, compute_text_digest, encode_messages
from gavel.models.service import Service
from gavel.models.types import Attempt, ChatRequest, Completion, Receipt, SpecialTokens

_TRANSPORT = (FailureKind.TRANSPORT_UNREACHABLE, FailureKind.TRANSPORT_PEER_DROP, FailureKind.TRANSPORT_TIMEOUT)


class GuardedModel:
    """Calls a service; ``fail_calls`` ends its calls, running and later ones. Implements ``ChatModel``,
    ``Confirming`` and ``TellingTokens``."""

    def __init__(self, client: ChatClient, service: Service) -> None:
        self._client, self._service = client, service
        self._death: ModelFailure | None = None
        self._calls: set[asyncio.Task[object]] = set()
        self._interrupted: set[asyncio.Task[object]] = set()

    @property
    def name(self) -> str:
        """The service's name in the config."""
        return self._client.name

    @property
    def client(self) -> ChatClient:
        """The client of the service; one for all who call it here, so that its limits hold for them together."""
        return self._client

    @property
    def in_flight(self) -> int:
        """How many calls are running."""
        return len(self._calls)

    async def complete(self, request: ChatRequest) -> Completion:
        """Answer one request; see ``ChatModel``.

        Raises:
            ModelFailure: as the client's; with kind ``transport_unreachable`` and the end of the log once the servers
                died.
        """
        if self._death is not None:
            raise self._make_failure(self._death, request)
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            return await self._client.complete(request)
        except asyncio.CancelledError:
            if not self._release_task(task) or self._death is None:
                raise  # somebody else's cancellation
            raise self._make_failure(self._death, request) from None
        except ModelFailure as failed:
            if self._death is None or failed.kind not in _TRANSPORT:
                raise
            raise ModelFailure(self._death.kind, self._death.reason, failed.receipts) from failed
        finally:
            self._release_task(task)

    def _release_task(self, task: asyncio.Task[object]) -> bool:
        """Take a call off the books; tell whether it was cancelled by ``fail_calls`` and by nobody else."""
        self._calls.discard(task)
        if task not in self._interrupted:
            return False
        self._interrupted.discard(task)
        return task.uncancel() == 0

    def fail_calls(self, death: ModelFailure) -> None:
        """End every running call with ``death`` and refuse later ones."""
        self._death = death
        self._interrupted |= self._calls
        for task in self._calls:
            task.cancel()

    def _make_failure(self, death: ModelFailure, request: ChatRequest) -> ModelFailure:
        receipt = Receipt(
            call_id(self._service, request),
            request.role,
            self.name,
            str(self._service.model),
            compute_text_digest(encode_messages(request.messages)),
            attempts=(Attempt(death.kind, 0.0, reason=death.reason),),
        )
        return ModelFailure(death.kind, death.reason, (receipt,))

    def confirm(self, request: ChatRequest, completion: Completion) -> None:
        """Say that a reply was usable; see ``Confirming``."""
        self._client.confirm(request, completion)

    async def read_special_tokens(self) -> SpecialTokens:
        """Return the special tokens of the model's tokenizer; see ``TellingTokens``."""
        return await self._client.read_special_tokens()

    async def close(self) -> None:
        """Close the client's connections."""
        await self._client.close()
