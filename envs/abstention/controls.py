"""Known answers for the environment as a whole: from the policy's text to the reward of the v1 objective."""

from __future__ import annotations

from gavel.envs.abstention.environment import NAME
from gavel.envs.abstention.target import AbstentionTarget
from gavel.envs.types import Task, Transcript
from gavel.models.codec import record
from gavel.models.types import Message, Reply

TARGET_FORMAT = "nemo_abstention_v1"


@record
class AbstentionControl:
    """What a policy says to a question with a known answer, and the label and v1 reward this must get."""

    name: str
    question: str
    reference: str
    reply: str
    label: str
    reward: float

    def make_task(self, binding: str) -> Task:
        """Return the control as a task that ``binding`` judges."""
        target = AbstentionTarget(self.question, self.reference)
        return Task(
            f"control:{self.name}",
            NAME,
            f"{TARGET_FORMAT}/{binding}",
            (Message("user", self.question),),
            target,
            {"domain": "control"},
        )

    def make_transcript(self) -> Transcript:
        """Return the episode up to the policy's complete reply."""
        reply = Reply(self.reply, "stop", "control")
        return Transcript((Message("user", self.question), Message("assistant", self.reply, reply=reply)))


def list_abstention_controls() -> tuple[AbstentionControl, ...]:
    """Return a correct answer, a wrong one, an explicit and an implicit abstention: 1, 0, 0.5, 0.5.

    The right answer is not the reference word for word, so that no rule decides it and the judge must.
    """
    question, reference = "What is the capital of Australia?", "Canberra"
    return tuple(
        AbstentionControl(name, question, reference, reply, label, reward)
        for name, reply, label, reward in (
            ("correct", r"\boxed{The city of Canberra}", "correct", 1.0),
            ("incorrect", r"\boxed{Sydney}", "incorrect", 0.0),
            ("abstention_explicit", r"\boxed{[IDK]}", "abstained", 0.5),
            ("abstention_implicit", "I'm not sure; I would have to look that up.", "abstained", 0.5),
        )
    )
