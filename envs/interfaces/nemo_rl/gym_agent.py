"""A training's samples as NeMo Gym plays them: the agent that draws the policy's replies, turn by turn, and grades.

NeMo-RL ends a step at the first row that fails in NeMo Gym, or comes back without tokens; and it sends the rows of a
batch again where one was lost. So a row of ours never fails: what could not be drawn or graded is answered like
everything else, masked, with one token in the place of those that are missing. A row that is sent again gets the answer
that it had: another reply with the first one's grade would be trained on. Rows are those of ``stamps.make_gym_row``;
token ids are those that NeMo Gym's model server gives (``environments/nemo_gym.py`` of NVIDIA-NeMo/RL at
7ea279abfbeb698b092856d0dab61e7cf39bc909; ``responses_api_models/vllm_model`` of NeMo Gym 0.7.0).
"""

from __future__ import annotations

import asyncio
import itertools
import traceback
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import orjson

from gavel.envs.endings import make_encodable
from gavel.envs.interfaces.nemo_gym.responses import ResponseError, read_messages
from gavel.envs.interfaces.nemo_rl.framing import Frame
from gavel.envs.interfaces.nemo_rl.grading import PLACEHOLDER
from gavel.envs.interfaces.nemo_rl.hosting import SampleHost
from gavel.envs.interfaces.nemo_rl.stamps import (
    FRAME,
    HISTORY,
    PREFILLED,
    RESULT,
    TOO_LONG,
    UID,
    UNDRAWN,
    VERDICT,
    is_ours,
    with_ending,
)
from gavel.envs.play import end_ungraded
from gavel.envs.types import Transcript
from gavel.models.codec import to_json
from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.types import Reply

KEPT_BYTES = 256 << 20
"""Answers held for rows that are sent again; a batch of thousands of tokens a row fits."""
PARAMS = "responses_create_params"
_TOKENS, _PROMPT = "generation_token_ids", "prompt_token_ids"
_LOST = {_PROMPT: [0], _TOKENS: [0], "generation_log_probs": [0.0]}
"""Tokens of a row that has none: NeMo-RL demands some; they weigh nothing."""


class DrawsReplies(Protocol):
    """A model server of NeMo Gym's; ``cookies`` are those of this episode, and are changed."""

    async def draw_reply(self, body: Mapping[str, Any], cookies: dict[str, str]) -> dict[str, Any]:
        """Return the Responses object of a request; raises ``ModelFailure``."""
        ...


@dataclass(slots=True)
class Played:
    """An episode as far as it is played: the items of its response, the ids of its tokens, the newest answer."""

    items: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    answer: dict[str, Any] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)


class GymAgent(SampleHost):
    """Plays and grades rows.

    Args:
        config: ``env.<name>`` of the trainer's config, resolved.
        model: draws the policy's replies.
    """

    def __init__(self, config: Mapping[str, Any], model: DrawsReplies) -> None:
        super().__init__(config)
        self._model = model
        self._answers: OrderedDict[str, asyncio.Task[bytes]] = OrderedDict()
        self._kept = 0

    async def answer_row(self, row: Mapping[str, Any]) -> bytes:
        """Return a row's answer as JSON: ``reward``, ``response`` with token ids, ``mask_sample``, the verdict.

        Raises:
            KeyError: the row is not one that the driver has stamped.
        """
        if not is_ours(row) or UID not in row:
            raise KeyError(UID)
        uid = str(row[UID])
        task = self._answers.get(uid)
        if task is None:
            task = self._answers[uid] = asyncio.create_task(self._make_answer(row))
            task.add_done_callback(self._note_size)
        return await asyncio.shield(task)  # a sender that goes away ends nothing: it sends the row again

    def _note_size(self, task: asyncio.Task[bytes]) -> None:
        self._kept += _measure_answer(task)
        while self._kept > KEPT_BYTES and len(self._answers) > 1 and (oldest := next(iter(self._answers.values()))):
            if not oldest.done():
                return
            self._answers.popitem(last=False)
            self._kept -= _measure_answer(oldest)

    async def _make_answer(self, row: Mapping[str, Any]) -> bytes:
        uid, played = self._choose_uid(str(row[UID])), Played()
        verdict, result = None, None
        try:
            await self.open_services()
            await self._play_row({**row, UID: uid}, played)
            verdicts, results = self._grader.take_verdicts([uid])
            verdict, result = verdicts[0], results[0] if results else None
        except Exception:  # noqa: BLE001 - the boundary to NeMo-RL, whose step would end: no verdict means ungraded
            traceback.print_exc()
        graded = verdict is not None and verdict.graded
        drawn = any(item.get(_TOKENS) for item in played.items)
        return to_json(
            {
                PARAMS: row[PARAMS],
                "response": _make_response(row, played, drawn=drawn),
                UNDRAWN: to_json(not drawn).decode(),
                "reward": verdict.reward if verdict is not None and verdict.reward is not None else PLACEHOLDER,
                "mask_sample": not graded,
                "instance_config": {"mask_sample": not graded},
                VERDICT: to_json(verdict).decode(),
                RESULT: to_json(replace(result, transcript=Transcript())).decode() if result is not None else None,
            }
        )

    def _choose_uid(self, uid: str) -> str:
        """Return the row's id; a further one where an earlier process has ended a reply that is lost under it."""
        names = itertools.chain([uid], (f"{uid}r{number}" for number in itertools.count(1)))
        return next(name for name in names if not self._grader.is_known(name))

    async def _play_row(self, info: Mapping[str, Any], played: Played) -> None:
        """Play an episode to its end, which the ledger then knows."""
        if info[TOO_LONG] is not None:
            return await self._end_row(info, FailureKind.CONTEXT_OVERFLOW, str(info[TOO_LONG]))
        while True:
            try:
                reply = await self._draw_reply(info, played)
            except ModelFailure as failed:
                return await self._end_row(info, failed.kind, failed.reason)
            said = self._grader.step_sample(reply.text, with_ending(info, _make_ending(info, reply, played)))
            stepped = await said
            if stepped.terminated or stepped.info is None:
                return None
            info = stepped.info
            frame, text = Frame(**info[FRAME]), info[HISTORY][-1]["content"]
            played.items.append({"type": "message", "role": "user", "content": frame.break_controls(text)})

    async def _end_row(self, info: Mapping[str, Any], kind: FailureKind, reason: str) -> None:
        await self._grader.end_sample(info, end_ungraded(kind, "policy", reason))

    async def _draw_reply(self, info: Mapping[str, Any], played: Played) -> Reply:
        """Draw the next reply; its items go into the response.

        Raises:
            ModelFailure: there is none that could be trained on.
        """
        params = info[PARAMS]
        body = {**params, "input": [*params["input"], *played.items]}
        answer = await self._model.draw_reply(body, played.cookies)
        output = answer.get("output")
        items = [dict(item) for item in output if isinstance(item, Mapping)] if isinstance(output, list) else []
        drawn = [item for item in items if item.get(_TOKENS)]
        if not drawn:
            raise _explain_empty(answer, first=not played.items)
        tokens = played.tokens
        for item in drawn:
            if item[_PROMPT][: len(tokens)] != tokens:
                reason = "the tokens of a turn do not continue those before it, so that it cannot be trained on"
                raise ModelFailure(FailureKind.EPISODE_CUT, reason)
            tokens = [*item[_PROMPT], *item[_TOKENS]]
        try:
            reply = read_messages({**answer, "output": items})[-1].reply
        except ResponseError as failed:
            raise ModelFailure(FailureKind.PROVIDER_UNAVAILABLE, str(failed)) from None
        assert reply is not None, "what the policy said is a reply"
        played.items += items
        played.tokens, played.answer = tokens, answer
        return reply


def _measure_answer(task: asyncio.Task[bytes]) -> int:
    return 0 if task.cancelled() or task.exception() is not None else len(task.result())


def _explain_empty(answer: Mapping[str, Any], *, first: bool) -> ModelFailure:
    """Say why a reply has no tokens: NeMo Gym's model server answers so where the prompt is too long."""
    if answer.get("incomplete_details") or answer.get("status") == "incomplete":
        kind = FailureKind.CONTEXT_OVERFLOW if first else FailureKind.EPISODE_CUT
        return ModelFailure(kind, "the conversation leaves no room for a reply in the policy's context")
    return ModelFailure(FailureKind.EPISODE_CUT, "the policy's reply has no tokens that could be trained on")


def _make_ending(info: Mapping[str, Any], reply: Reply, played: Played) -> dict[str, Any]:
    last = next(item for item in reversed(played.items) if item.get(_TOKENS))
    return {
        "finish_reason": reply.finish_reason,
        "think_prefilled": bool(info[PREFILLED]),
        "prompt_tokens": len(last[_PROMPT]),
        "completion_tokens": len(last[_TOKENS]),
        "last_id": int(last[_TOKENS][-1]),
    }


def _make_response(row: Mapping[str, Any], played: Played, *, drawn: bool) -> dict[str, Any]:
    items: Sequence[Mapping[str, Any]] = played.items
    if not drawn:
        content = [{"type": "output_text", "text": "", "annotations": []}]
        lost = {"type": "message", "role": "assistant", "id": "msg_lost", "status": "incomplete", "content": content}
        items = [*items, {**lost, **_LOST}]
    head = {"id": f"resp_{row[UID]}", "created_at": 0, "model": "", "object": "response", "status": "completed"}
    usual = {"parallel_tool_calls": False, "tool_choice": "auto", "tools": []}
    return {**head, **usual, **played.answer, "output": items}


def read_row(body: bytes) -> dict[str, Any]:
    """Read a row as NeMo Gym sends it.

    Raises:
        ValueError: it is no JSON object.
    """
    row = orjson.loads(body)
    if not isinstance(row, dict):
        raise ValueError(make_encodable(f"this is no row: {body[:80]!r}"))
    return row
