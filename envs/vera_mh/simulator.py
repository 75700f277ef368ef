"""The persona's side: a simulator's next utterance, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gavel.envs.draws import get_current_draw
from gavel.envs.vera_mh.conversation import END_SIGNAL, Utterance, make_persona_messages
from gavel.judges.answers import get_current_log
from gavel.judges.types import StoredAnswer
from gavel.models.codec import compute_digest, record
from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.types import ChatModel, ChatRequest, Message, Receipt, Sampling


@record
class Spoken:
    """What the persona said, and the receipts of the calls."""

    text: str
    receipts: tuple[Receipt, ...]


@dataclass(frozen=True, slots=True)
class Simulators:
    """Plays personas.

    Args:
        services: the models by service name; one is looked up only when it speaks.
        sampling: how each service's words are drawn.
    """

    services: Mapping[str, ChatModel]
    sampling: Mapping[str, Sampling]

    async def ask_persona(self, service: str, prompt: str, reminder: str, said: Sequence[Utterance]) -> Spoken:
        """Return the persona's next utterance, as the model wrote it: an empty or cut-off one counts, as it does
        upstream.

        Words that end the conversation are kept in the row's answer log before anything is judged, so that a resumed
        row ends as it did; all others stand in its journal as the environment's turn.

        Raises:
            ModelFailure: ``gavel:simulation_failed``, with the receipts.
        """
        messages = make_persona_messages(prompt, reminder, said)
        key = compute_digest(["persona", service, [[message.role, message.content] for message in messages]])
        log = get_current_log()
        stored = log.find(key) if log is not None else None
        if stored is not None:
            return Spoken(stored.raw, stored.receipts)
        spoken = await self._call_simulator(service, messages)
        if log is not None and END_SIGNAL.lower() in spoken.text.lower():
            log.keep(StoredAnswer(key, service, {"said": "the persona's last words"}, "", spoken.text, spoken.receipts))
        return spoken

    async def _call_simulator(self, service: str, messages: tuple[Message, ...]) -> Spoken:
        # The role "policy" makes the client take a reply as it is; the receipt then says whose it was.
        request = ChatRequest(
            messages,
            "policy",
            self.sampling[service],
            sample=get_current_draw(),
            fresh=True,
            prefix_key=messages[0].content,
            filtered=True,
        )
        try:
            completion = await self.services[service].complete(request)
        except ModelFailure as failed:
            receipts = tuple(replace(receipt, role="simulator") for receipt in failed.receipts)
            kind = failed.kind if failed.kind is FailureKind.SHUTDOWN else FailureKind.SIMULATION_FAILED
            raise ModelFailure(kind, f"{service}: {failed.kind}: {failed.reason}", receipts, failed.raw) from failed
        return Spoken(completion.reply.text, (replace(completion.receipt, role="simulator"),))
