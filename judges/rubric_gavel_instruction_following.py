"""Profile ``gavel/instruction-following-v1``: one yes-or-no check of a reply against the conversation that led to it.

The prompt is laid out for prefix caching (instructions and examples, conversation, reply, check, cue), so that several checks of one
reply share all but their last lines. The answer is a JSON object, reasoning first, asked for as structured output. Servers without it
get the same prompt; a reply is then read as far as it states one verdict, and never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from gavel.judges.assets import AssetStore
from gavel.judges.instruction_controls import INSTRUCTION_CONTROLS, INSTRUCTION_SLOTS
from gavel.judges.neutralise import Neutraliser, fence
from gavel.judges.prompt_rubric import PromptRubric, rubric_digest, sampling
from gavel.judges.template import check_slots, parse_template
from gavel.judges.types import RubricConfig, Unparseable, Verdict
from gavel.models.errors import shorten
from gavel.models.types import ResponseFormat

PROFILE = "gavel/instruction-following-v1"
TARGETS = ("verifif",)
ASSETS = ("gavel_instruction_following_v1.txt",)
LABELS = ("yes", "no")
NEUTRALISER = Neutraliser(("<conversation>", "</conversation>", "<reply>", "</reply>", "<check>", "</check>"))
_VERSION = "2"
_FORMAT = ResponseFormat(
    json_schema={
        "type": "object",
        "properties": {"reasoning": {"type": "string", "maxLength": 400}, "verdict": {"type": "string", "enum": ["YES", "NO"]}},
        "required": ["reasoning", "verdict"],
        "additionalProperties": False,
    }
)
_SLOTS = frozenset(INSTRUCTION_SLOTS)
_LABEL_OF = {"yes": "yes", "no": "no", "true": "yes", "false": "no"}
_THINKING = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_OPEN = re.compile(r"\s*<think(?:ing)?>", re.IGNORECASE)
_MARKER = re.compile(r"\[\[\s*(yes|no)\s*\]\]", re.IGNORECASE)
_DECORATION = r"[\s*_`\"'#>]*"
_LAST_LINE = re.compile(
    rf"{_DECORATION}(?:(?:final\s+)?(?:verdict|answer)\b[\s*_`\"':=]*)?(yes|no|true|false)[.!]?{_DECORATION}", re.IGNORECASE
)
_BRACES = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)


def build(config: RubricConfig, assets: AssetStore) -> PromptRubric:
    """Make the rubric.

    Raises:
        AssetError: the shipped prompt is not the pinned one.
    """
    text = assets.text(ASSETS[0]).removesuffix("\n")
    drawn = sampling(config, max_response_tokens=512, temperature=0.0)
    return PromptRubric(
        profile=PROFILE, targets=TARGETS, slots=INSTRUCTION_SLOTS, labels=LABELS, sampling=drawn, response_format=_FORMAT,
        digest=rubric_digest(PROFILE, _VERSION, text, drawn, _FORMAT), controls=INSTRUCTION_CONTROLS,
        template=parse_template(text, _SLOTS | {"fence"}),
        prepare=_values, reader=parse, flagger=lambda slots: NEUTRALISER.flags(slots["reply"]),
    )  # fmt: skip


def _values(slots: Mapping[str, str]) -> Mapping[str, str]:
    check_slots(_SLOTS, slots)
    values = {name: NEUTRALISER.clean(text) for name, text in slots.items()}
    return {**values, "fence": fence(values["reply"])}


def parse(text: str) -> Verdict:
    """Read a reply: the contract's object alone (``exact``), an object in other text (``object``), the last ``[[YES]]`` or ``[[NO]]``
    (``marker``), or a last line that is nothing but a verdict (``last_line``). Case does not matter, and true and false will do.

    Raises:
        Unparseable: no verdict, objects that contradict one another, or a thinking block that never ends (a verdict in it is a draft).
    """
    visible = _THINKING.sub("", text).strip()
    if _OPEN.match(visible):
        raise Unparseable("the thinking block never ends")
    for how, read in _READERS:
        if (verdict := read(visible)) is not None:
            label, reasoning = verdict
            return Verdict(label, how, reasoning=reasoning)
    raise Unparseable(f"the reply states no verdict: {shorten(text)}")


Reading = tuple[str, str] | None


def _exact(text: str) -> Reading:
    found = _loaded(text)
    if isinstance(found, bool):
        return _LABEL_OF[str(found).lower()], ""
    return _of_object(found)


def _object(text: str) -> Reading:
    readings = [reading for part in _objects(text) if (reading := _of_object(_loaded(part))) is not None]
    if len({label for label, _ in readings}) > 1:
        raise Unparseable(f"the reply states two verdicts: {shorten(text)}")
    return readings[0] if readings else None


def _marker(text: str) -> Reading:
    found = _MARKER.findall(text)
    return (found[-1].lower(), "") if found else None


def _last_line(text: str) -> Reading:
    found = _LAST_LINE.fullmatch(text.rpartition("\n")[2])
    return (_LABEL_OF[found[1].lower()], "") if found else None


_READERS: tuple[tuple[str, Callable[[str], Reading]], ...] = (
    ("exact", _exact), ("object", _object), ("marker", _marker), ("last_line", _last_line),
)  # fmt: skip


def _of_object(found: Any) -> Reading:
    if not isinstance(found, dict):
        return None
    fields = {str(name).lower(): value for name, value in found.items()}
    verdict, reasoning = fields.get("verdict"), fields.get("reasoning")
    label = _LABEL_OF.get(str(verdict).strip().lower()) if isinstance(verdict, str | bool) else None
    return None if label is None else (label, reasoning if isinstance(reasoning, str) else "")


def _loaded(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _objects(text: str) -> Iterator[str]:
    """Yield each outermost balanced ``{…}``; braces in its JSON strings do not count."""
    position = 0
    while (start := text.find("{", position)) >= 0:
        end = _closes_at(text, start)
        if end > 0:
            yield text[start:end]
        position = max(end, start + 1)


def _closes_at(text: str, start: int) -> int:
    depth = 0
    for token in _BRACES.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth == 0:
            return token.end()
    return -1
