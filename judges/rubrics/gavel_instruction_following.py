"""Profile ``gavel/instruction-following-v1``: one yes-or-no check of a reply against the conversation that led to it.

The prompt is laid out for prefix caching (instructions and examples, conversation, reply, check, cue), so that several
checks of one reply share all but their last lines. The answer is a JSON object, reasoning first, asked for as
structured output. Servers without it get the same prompt; a reply is then read as far as it states one verdict, and
never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping

from gavel.judges.assets import AssetStore
from gavel.judges.controls.instructions import INSTRUCTION_CONTROLS, INSTRUCTION_SLOTS
from gavel.judges.neutralise import Neutraliser, make_fence
from gavel.judges.rubrics.prompt import PromptRubric, compute_rubric_digest, make_sampling
from gavel.judges.rubrics.template import check_slots, parse_template
from gavel.judges.rubrics.verdict import VerdictForm
from gavel.judges.types import RubricConfig, Verdict
from gavel.models.types import ResponseFormat

PROFILE = "gavel/instruction-following-v1"
TARGETS = ("verifif",)
ASSETS = ("gavel_instruction_following_v1.txt",)
LABELS = ("yes", "no")
NEUTRALISER = Neutraliser(("<conversation>", "</conversation>", "<reply>", "</reply>", "<check>", "</check>"))
_VERSION = "4"
_FORMAT = ResponseFormat(
    json_schema={
        "type": "object",
        "properties": {
            "reasoning": {"type": "string", "maxLength": 400},
            "verdict": {"type": "string", "enum": ["YES", "NO"]},
        },
        "required": ["reasoning", "verdict"],
        "additionalProperties": False,
    }
)
_SLOTS = frozenset(INSTRUCTION_SLOTS)
_FORM = VerdictForm({"yes": "yes", "no": "no", "true": "yes", "false": "no"})


def build(config: RubricConfig, assets: AssetStore) -> PromptRubric:
    """Make the rubric.

    Raises:
        AssetError: the shipped prompt is not the pinned one.
    """
    text = assets.read_text(ASSETS[0]).removesuffix("\n")
    drawn = make_sampling(config, max_response_tokens=512, temperature=0.0)
    return PromptRubric(
        profile=PROFILE,
        targets=TARGETS,
        slots=INSTRUCTION_SLOTS,
        labels=LABELS,
        sampling=drawn,
        response_format=_FORMAT,
        digest=compute_rubric_digest(PROFILE, _VERSION, text, drawn, _FORMAT),
        controls=INSTRUCTION_CONTROLS,
        template=parse_template(text, _SLOTS | {"fence"}),
        prepare=_make_values,
        reader=parse,
        judged="reply",
        neutraliser=NEUTRALISER,
    )


def _make_values(slots: Mapping[str, str]) -> Mapping[str, str]:
    check_slots(_SLOTS, slots)
    return {**slots, "fence": make_fence(slots["reply"])}


def parse(text: str) -> Verdict:
    """Read a reply; see ``VerdictForm.read_verdict``. Case does not matter, and true and false will do.

    Raises:
        Unparseable: no verdict, several that contradict one another, or a thinking block that never ends (a verdict in
            it is a draft).
    """
    return _FORM.read_verdict(text)
