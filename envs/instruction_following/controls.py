"""Known answers for the environment as a whole: from the policy's text to the reward under the default policy
``all``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gavel.envs.instruction_following.environment import NAME
from gavel.envs.instruction_following.findings import FOLLOWED, NOT_FOLLOWED
from gavel.envs.instruction_following.target import parse_target
from gavel.envs.types import Task, Transcript
from gavel.models.codec import record
from gavel.models.types import Message, Reply

TARGET_FORMAT = "verifif"
_ASKED = "Invite your neighbours to a barbecue, politely and without commas."
_PLACE = {"source": "user", "is_misalignment_check": False}
_COMMA = {"uid": 1, "instruction_id": "punctuation:no_comma", **_PLACE}
_POLITE = {"uid": 2, "instruction_id": "stylistic:politeness", "politeness_degree": "polite", **_PLACE}
_DATE = {"uid": 3, "content": "Does the reply name a date or a day of the week?", **_PLACE}
_NO_DATE = {**_DATE, "pass_criteria": "NO"}


@record
class InstructionControl:
    """What a policy says to a request whose items have known verdicts, and the label and reward this must get."""

    name: str
    instructions: tuple[Mapping[str, Any], ...]
    questions: tuple[Mapping[str, Any], ...]
    reply: str
    label: str
    reward: float

    def make_task(self, binding: str) -> Task:
        """Return the control as a task that ``binding`` judges."""
        target = parse_target({"instructions": list(self.instructions), "llm_judge": list(self.questions)})
        asked = (Message("user", _ASKED),)
        return Task(f"control:{self.name}", NAME, f"{TARGET_FORMAT}/{binding}", asked, target, {"domain": "control"})

    def make_transcript(self) -> Transcript:
        """Return the episode up to the policy's complete reply."""
        reply = Reply(self.reply, "stop", "control")
        return Transcript((Message("user", _ASKED), Message("assistant", self.reply, reply=reply)))


_KIND = "Dear neighbours! Would you please join us for a barbecue on Saturday? Thank you and kind regards."
_RUDE = "You lot. Come over on Saturday or stay at home for all I care."


def list_instruction_controls() -> tuple[InstructionControl, ...]:
    """Return replies that pass everything, and ones that fail only a fast check, only a judged one, only a question: 1,
    0, 0, 0.
    """
    items = (_COMMA, _POLITE)
    return (
        InstructionControl("all_followed", items, (_DATE,), _KIND, FOLLOWED, 1.0),
        InstructionControl("fast_failed", items, (_DATE,), _KIND.replace("Would", "Well, would"), NOT_FOLLOWED, 0.0),
        InstructionControl("judged_failed", items, (_DATE,), _RUDE, NOT_FOLLOWED, 0.0),
        InstructionControl("question_failed", items, (_NO_DATE,), _KIND, NOT_FOLLOWED, 0.0),
    )
