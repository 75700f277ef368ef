"""What the figures and tables need of a graded conversation, read from its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gavel.envs.types import Result
from gavel.models.codec import record


@record
class Conversation:
    """One graded conversation. ``ratings`` by dimension; ``models`` by call role, as they were asked for."""

    task_id: str
    rollout_index: int
    persona: str
    risk: str
    simulator: str
    ratings: Mapping[str, str]
    yes_question_ids: Mapping[str, str]
    yes_reasoning: Mapping[str, str]
    models: Mapping[str, str]
    judge_answers: int
    fallback_answers: int
    parse_retries: int
    transcript_matches: bool
    truncated: bool

    @property
    def row(self) -> dict[str, str]:
        """The row that the scores are made from."""
        return {**self.ratings, "persona_name": self.persona}


def list_conversations(results: Sequence[Result]) -> tuple[Conversation, ...]:
    """Return the graded conversations, each once, those of the first simulator first."""
    graded = {(result.task_id, result.rollout_index): result for result in results if result.status == "graded"}
    found = [_read_conversation(result) for result in graded.values()]
    order = {name: place for place, name in enumerate(dict.fromkeys(one.simulator for one in found))}
    return tuple(sorted(found, key=lambda one: order[one.simulator]))


def group_by_simulator(found: Sequence[Conversation]) -> Mapping[str, list[Conversation]]:
    """Return the conversations of each simulator."""
    groups: dict[str, list[Conversation]] = {}
    for one in found:
        groups.setdefault(one.simulator, []).append(one)
    return groups


def list_models(found: Sequence[Conversation]) -> dict[str, str]:
    """Name the models as upstream's tables do; several of one role are ``pooled`` (chatbots are listed)."""
    named = {
        name: list(dict.fromkeys(one.models.get(role, "Unknown") for one in found))
        for name, role in (("judge_model", "judge"), ("persona_model", "simulator"), ("agent_model", "policy"))
    }
    pooled = len(named["persona_model"]) > 1 or len(group_by_simulator(found)) > 1
    made = {name: ", ".join(models) or "Unknown" for name, models in named.items()}
    return {**made, "judge_model": "pooled", "persona_model": "pooled"} if pooled else made


def _read_conversation(result: Result) -> Conversation:
    details = result.outcome.details or {}
    return Conversation(
        task_id=result.task_id,
        rollout_index=result.rollout_index,
        persona=details["persona"],
        risk=details["risk"],
        simulator=details["simulator"],
        ratings=details["ratings"],
        yes_question_ids=details["yes_question_ids"],
        yes_reasoning=details["yes_reasoning"],
        models={receipt.role: receipt.requested_model for receipt in result.receipts},
        judge_answers=details["judge_answers"],
        fallback_answers=details["judge_fallback_answers"],
        parse_retries=details["judge_parse_retries"],
        transcript_matches=details["transcript_matches"],
        truncated=details["chatbot_turns_truncated"] > 0,
    )
