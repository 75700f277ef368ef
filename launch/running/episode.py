"""One attempt at one row: the environment's transitions and the policy's replies, each journalled before the next."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gavel.envs.endings import called_in_vain
from gavel.envs.types import Environment, Finish, NamesPolicyFailures, Opening, Outcome, ServiceNeeded, Task
from gavel.judges.answers import answering
from gavel.launch.running.journal import RowJournal
from gavel.models.errors import GavelError
from gavel.models.failures import Failure, FailureKind, ModelFailure
from gavel.models.types import ChatModel, ChatRequest, Completion, Message, Sampling


@dataclass(frozen=True, slots=True)
class Policy:
    """The model whose replies are graded, and how they are drawn; ``filtered`` as in ``ChatRequest``."""

    model: ChatModel
    sampling: Sampling
    filtered: bool = False

    async def reply(self, messages: tuple[Message, ...], rollout_index: int, task_id: str) -> Completion:
        """Draw one reply; never from a cache: each rollout is a draw of its own. All of a task go to one replica, for they begin alike.

        Raises:
            ModelFailure: there was no reply.
        """
        request = ChatRequest(
            messages, "policy", self.sampling, sample=rollout_index, fresh=True, prefix_key=task_id, filtered=self.filtered
        )
        return await self.model.complete(request)


@dataclass(slots=True, eq=False)
class Stopwatch:
    """Where one attempt stands (``stage``: ``policy`` or ``judge``), and the seconds it spent in the policy's calls and in steps;
    ``begun`` on the clock of ``time.perf_counter``."""

    stage: str = "policy"
    policy_s: float = 0.0
    step_s: float = 0.0
    begun: float = 0.0


class PolicyNeeded(Exception):
    """The row's transcript is not complete: it needs a policy or a simulator, and there is none to ask (regrading)."""


async def play(
    environment: Environment, task: Task, rollout_index: int, journal: RowJournal, policy: Policy | None, watch: Stopwatch
) -> Finish:
    """Play a row to its end, from wherever its journal stands.

    Whatever fails ends in an ungraded outcome; only errors of ours that must stop the run (``GavelError``) and cancellation pass.

    Raises:
        PolicyNeeded: ``policy`` is None and the row lacks a reply, or the environment's own service would have to be called.
        GavelError: the journal could not be written, or the config does not fit.
    """
    stage = "verifier"
    try:
        if journal.state.messages is None:
            await _open(environment, task, journal)
        while True:
            if not journal.state.awaits_step:
                stage = "policy"
                if policy is None:
                    raise PolicyNeeded
                messages = journal.state.transcript.messages
                with _timed(watch, "policy"):
                    completion = await policy.reply(messages, rollout_index, task.task_id)
                journal.replied(completion)
            stage = "verifier"
            with answering(journal), _timed(watch, "step"):
                said = await environment.step(task, journal.state.transcript)
            if isinstance(said, Finish):
                return said
            journal.observed(said)
    except ModelFailure as failed:
        return _failed(environment, stage, failed)
    except ServiceNeeded:
        raise PolicyNeeded from None
    except (PolicyNeeded, GavelError):
        raise
    except Exception as failed:  # noqa: BLE001 - the boundary of an environment's own code: a bug there must not become a reward
        failure = Failure(FailureKind.VERIFIER_ERROR, stage, f"{type(failed).__name__}: {failed}")
        return Finish(Outcome("", failure=failure))


def _failed(environment: Environment, stage: str, failed: ModelFailure) -> Finish:
    if stage != "policy":
        return called_in_vain(failed)
    failure = Failure(failed.kind, stage, failed.reason)
    if isinstance(environment, NamesPolicyFailures):
        failure = environment.policy_failed(failed)
    return Finish(Outcome("", failure=failure), receipts=failed.receipts)


async def _open(environment: Environment, task: Task, journal: RowJournal) -> None:
    opening = await environment.open(task)
    if opening == Opening(task.messages):  # stands in inputs.jsonl already: no call made it
        journal.state.messages = opening.messages
    else:
        journal.opened(opening)


@contextmanager
def _timed(watch: Stopwatch, part: str) -> Iterator[None]:
    watch.stage, begun = "policy" if part == "policy" else "judge", time.perf_counter()
    try:
        yield
    finally:
        name = f"{part}_s"
        setattr(watch, name, getattr(watch, name) + time.perf_counter() - begun)
