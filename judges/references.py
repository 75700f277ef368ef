"""What a judge of answers is given as the reference: the one accepted answer, or several, or that no answer is
right.
"""

from __future__ import annotations

from collections.abc import Sequence

from gavel.judges.rubrics import nvidia_abstention as rubric_nvidia_abstention

NOTHING_RIGHT = "(none: this question has no right answer; only to say so, or that one does not know, is right)"


def write_references(profile: str, references: Sequence[str]) -> str:
    """Return what a judge is given as the reference: one as it is, several so that any is seen to be right.

    The native prompt takes one text and its grader reads alternatives in a sentence; ours lists them, one a line.
    """
    if not references:
        return NOTHING_RIGHT
    if len(references) == 1:
        return references[0]
    if profile == rubric_nvidia_abstention.PROFILE:
        return " or ".join(references)
    return "\n".join(("Any one of these is right:", *(f"- {reference}" for reference in references)))
