"""Where an episode stands: the record that play writes before it goes on, the policy it asks, and the seconds it
takes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gavel.envs.types import Observe, Opening, Transcript
from gavel.judges.types import AnswerLog, StoredAnswer
from gavel.models.types import ChatModel, ChatRequest, Completion, Message, Receipt, Sampling


@dataclass(frozen=True, slots=True)
class Policy:
    """The model whose replies are graded, and how they are drawn; ``filtered`` as in ``ChatRequest``."""

    model: ChatModel
    sampling: Sampling
    filtered: bool = False

    async def draw_reply(self, messages: tuple[Message, ...], rollout_index: int, task_id: str) -> Completion:
        """Draw one reply; never from a cache: each rollout is a draw of its own. All of a task go to one replica, for
        they begin alike.

        Raises:
            ModelFailure: there was no reply.
        """
        request = ChatRequest(
            messages,
            "policy",
            self.sampling,
            sample=rollout_index,
            fresh=True,
            prefix_key=task_id,
            filtered=self.filtered,
        )
        return await self.model.complete(request)


@dataclass(slots=True, eq=False)
class Stopwatch:
    """Where one attempt stands (``stage``: ``policy`` or ``judge``), and the seconds it spent in the policy's calls and
    in steps; ``begun`` on the clock of ``time.perf_counter``."""

    stage: str = "policy"
    policy_s: float = 0.0
    step_s: float = 0.0
    begun: float = field(default_factory=time.perf_counter)

    @contextmanager
    def measure_part(self, part: Literal["policy", "step"]) -> Iterator[None]:
        """Add the seconds that this block takes."""
        self.stage, begun = "policy" if part == "policy" else "judge", time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - begun
            if part == "policy":
                self.policy_s += seconds
            else:
                self.step_s += seconds


@dataclass(slots=True)
class EpisodeState:
    """What is known of one row: its transcript so far, the receipts of the calls that made it, its answered judge
    questions.
    """

    messages: tuple[Message, ...] | None = None  # None: not opened
    receipts: tuple[Receipt, ...] = ()
    answers: dict[str, StoredAnswer] = field(default_factory=dict)
    over: bool = False  # the opening ended the episode

    @property
    def transcript(self) -> Transcript:
        """The transcript so far."""
        return Transcript(self.messages or ())

    @property
    def awaits_step(self) -> bool:
        """Whether the environment is to answer: the newest message is the policy's, or the policy has no say at all."""
        return self.over or (bool(self.messages) and self.messages[-1].reply is not None)  # type: ignore[index]

    def take_opening(self, opening: Opening) -> None:
        """Begin with an opening."""
        self.messages, self.receipts, self.over = opening.messages, self.receipts + opening.receipts, opening.over

    def take_reply(self, message: Message, receipt: Receipt) -> None:
        """Append the policy's message."""
        self.messages, self.receipts = (*(self.messages or ()), message), (*self.receipts, receipt)

    def take_observation(self, observed: Observe) -> None:
        """Append what the environment said."""
        self.messages, self.receipts = (self.messages or ()) + observed.messages, self.receipts + observed.receipts


class EpisodeRecord(AnswerLog, Protocol):
    """Keeps an episode's state, and writes each event before anything is done with it where it is stored.

    Every method may raise ``PersistenceError``.
    """

    state: EpisodeState

    def add_opening(self, opening: Opening, *, own: bool) -> None:
        """Take the opening; ``own``: it is the task's own messages, which no call made and which need not be stored."""
        ...

    def add_reply(self, completion: Completion) -> None:
        """Take a reply of the policy."""
        ...

    def add_observation(self, observed: Observe) -> None:
        """Take what the environment said."""
        ...


@dataclass(slots=True)
class MemoryRecord:
    """The record of an episode that is stored nowhere."""

    state: EpisodeState = field(default_factory=EpisodeState)

    def add_opening(self, opening: Opening, *, own: bool) -> None:
        """Take the opening; see ``EpisodeRecord``."""
        del own
        self.state.take_opening(opening)

    def add_reply(self, completion: Completion) -> None:
        """Take a reply of the policy."""
        self.state.take_reply(make_reply_message(completion), completion.receipt)

    def add_observation(self, observed: Observe) -> None:
        """Take what the environment said."""
        self.state.take_observation(observed)

    def find(self, key: str) -> StoredAnswer | None:
        """Return the answer to a judge question asked before."""
        return self.state.answers.get(key)

    def keep(self, answer: StoredAnswer) -> None:
        """Keep an answered judge question."""
        self.state.answers[answer.key] = answer


def make_reply_message(completion: Completion) -> Message:
    """Return a completion as the message of the policy."""
    return Message("assistant", completion.reply.text, completion.reply)
