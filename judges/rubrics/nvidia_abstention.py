"""Profile ``nvidia/qa-abstention-v1``: NeMo Gym's abstention grader, byte for byte (NVIDIA-NeMo/Gym
``resources_servers/abstention/app.py`` at cf7f71a57dde0a69b14a2e919b60a01b17cc7abd, as in nemo-gym 0.4.0 to 0.7.0).

The permissive reading is part of that contract; every verdict says by which rule it was read, so that calibration can
count them.
"""

from __future__ import annotations

from collections.abc import Mapping

from gavel.judges.assets import AssetStore
from gavel.judges.controls.abstention import ABSTENTION_CONTROLS, LABELS, QUESTION_SLOTS
from gavel.judges.rubrics.prompt import PromptRubric, compute_rubric_digest, make_sampling
from gavel.judges.rubrics.template import check_slots, parse_template
from gavel.judges.types import RubricConfig, Unparseable, Verdict
from gavel.models.texts.thinking import split_thinking

PROFILE = "nvidia/qa-abstention-v1"
TARGETS = ("nemo_abstention_v1",)
ASSETS = ("omniscience_grader.txt",)
_VERSION = "2"
_LETTERS = {"A": "correct", "B": "incorrect", "C": "abstained"}
_SLOTS = frozenset(QUESTION_SLOTS)


def build(config: RubricConfig, assets: AssetStore) -> PromptRubric:
    """Make the rubric.

    Raises:
        AssetError: the prompt cannot be had, or it is not the pinned one.
    """
    text = assets.read_text(ASSETS[0])
    drawn = make_sampling(config, max_response_tokens=64, temperature=0.0)
    return PromptRubric(
        profile=PROFILE,
        targets=TARGETS,
        slots=QUESTION_SLOTS,
        labels=LABELS,
        sampling=drawn,
        response_format=None,
        digest=compute_rubric_digest(PROFILE, _VERSION, text, drawn, None),
        controls=ABSTENTION_CONTROLS,
        template=parse_template(text, {"question", "target", "predicted_answer"}),
        prepare=_make_values,
        reader=parse,
        judged="answer",
    )


def _make_values(slots: Mapping[str, str]) -> Mapping[str, str]:
    check_slots(_SLOTS, slots)
    return {"question": slots["question"], "target": slots["reference"], "predicted_answer": slots["answer"]}


def parse(text: str) -> Verdict:
    """Read a reply as upstream does: exactly A, B or C; else a last line of one letter; else A, B, C in this order
    anywhere; else B.

    Raises:
        Unparseable: nothing is left after the thinking block, or the block never ends (the generation did not reach its
            answer).
    """
    split = split_thinking(text)
    if not split.finished:
        raise Unparseable("the thinking block never ends")
    visible = split.answer.strip()
    if not visible:
        raise Unparseable("the reply is empty")
    letter, how = _read_letter(visible)
    return Verdict(_LETTERS[letter], how, details={"letter": letter})


def _read_letter(visible: str) -> tuple[str, str]:
    if visible in _LETTERS:
        return visible, "exact"
    last = visible.rsplit("\n", 1)[-1].strip()
    if last in _LETTERS:
        return last, "last_line"
    return next(((letter, "substring") for letter in _LETTERS if letter in visible), ("B", "default"))
