"""Profile ``gavel/qa-abstention-v1``: our own strict grader of factoid answers.

The prompt is laid out for prefix caching (instructions and examples, question, reference, candidate, cue); the reply is
one of three words, asked for as structured output and read only as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping

from gavel.judges.assets import AssetStore
from gavel.judges.controls.abstention import ABSTENTION_CONTROLS, LABELS, QUESTION_SLOTS
from gavel.judges.neutralise import Neutraliser, make_fence
from gavel.judges.rubrics.prompt import PromptRubric, compute_rubric_digest, make_sampling
from gavel.judges.rubrics.template import check_slots, parse_template
from gavel.judges.rubrics.verdict import extract_visible_reply, read_members
from gavel.judges.types import RubricConfig, Unparseable, Verdict
from gavel.models.calls.wire import CHOICE_FIELD
from gavel.models.errors import shorten_value
from gavel.models.types import ResponseFormat

PROFILE = "gavel/qa-abstention-v1"
TARGETS = ("nemo_abstention_v1",)
ASSETS = ("gavel_qa_abstention_v1.txt",)
NEUTRALISER = Neutraliser(("<question>", "</question>", "<reference>", "</reference>", "<candidate>", "</candidate>"))
_VERSION = "2"
_WORDS = {"CORRECT": "correct", "INCORRECT": "incorrect", "NOT_ATTEMPTED": "abstained"}
_FORMAT = ResponseFormat(choice=tuple(_WORDS))
_SLOTS = frozenset(QUESTION_SLOTS)


def build(config: RubricConfig, assets: AssetStore) -> PromptRubric:
    """Make the rubric.

    Raises:
        AssetError: the shipped prompt is not the pinned one.
    """
    text = assets.read_text(ASSETS[0]).removesuffix("\n")
    drawn = make_sampling(config, max_response_tokens=16, temperature=0.0)
    return PromptRubric(
        profile=PROFILE,
        targets=TARGETS,
        slots=QUESTION_SLOTS,
        labels=LABELS,
        sampling=drawn,
        response_format=_FORMAT,
        digest=compute_rubric_digest(PROFILE, _VERSION, text, drawn, _FORMAT),
        controls=ABSTENTION_CONTROLS,
        template=parse_template(text, _SLOTS | {"fence"}),
        prepare=_make_values,
        reader=parse,
        judged="answer",
        neutraliser=NEUTRALISER,
    )


def _make_values(slots: Mapping[str, str]) -> Mapping[str, str]:
    check_slots(_SLOTS, slots)
    return {**slots, "fence": make_fence(slots["answer"])}


def parse(text: str) -> Verdict:
    """Read a reply that is one of the three words and nothing else, alone or as the only member of the object that is
    asked of servers without a closed choice. Thinking before it, a fence around it and blanks do not count.

    Raises:
        Unparseable: anything else.
    """
    body, _ = extract_visible_reply(text)
    members = read_members(body, (CHOICE_FIELD,))
    word = body if members is None else members[CHOICE_FIELD]
    label = _WORDS.get(word.strip()) if isinstance(word, str) else None
    if label is None:
        raise Unparseable(f"the reply is not one of {', '.join(_WORDS)}: {shorten_value(text)}")
    return Verdict(label, "exact")
