"""The source ``verifif``: rows in the form of NeMo Gym's ``resources_servers/verifif`` (older: ``turing_vif``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from gavel.envs.instruction_following.environment import NAME
from gavel.envs.instruction_following.target import InstructionTarget, parse_target
from gavel.envs.messages import read_messages
from gavel.envs.sources import Licence, read_optional_id
from gavel.envs.types import Task, TaskError
from gavel.models.types import Message, Role

_FIELDS = ("instructions", "llm_judge", "language", "prompt")
_ROLES = get_args(Role)
_WHOLE_TEXT_CASE = ("all_caps", "lowercase", "alternating", "first_letter_cap")
_CASE_DETAILS = ("case_ratio", "first_letter_sentence", "last_letter")


def _list_conflicts() -> Iterator[tuple[str, str]]:
    for rule in _WHOLE_TEXT_CASE:
        yield f"change_case:{rule}", f"change_case:{rule}_target"
    for rule in ("all_caps", "lowercase"):
        for other in (*_WHOLE_TEXT_CASE, *_CASE_DETAILS):
            if other != rule:
                yield f"change_case:{rule}", f"change_case:{other}"
    for other in ("startend:quotation", "startend:wrap_checker"):
        yield "detectable_format:title", other
    for other in ("wrap_checker", "start_checker", "end_checker"):
        yield "startend:quotation", f"startend:{other}"
    yield "detectable_format:table", "length_constraints:sentence_length"
    for other in ("punctuation:end_rule", "detectable_format:numbered_list"):
        yield "punctuation:no_period", other
    for other in ("detectable_format:sentence_count", "detectable_format:number_paragraphs"):
        yield "detectable_format:json_format", other


CONFLICTS: frozenset[frozenset[str]] = frozenset(frozenset(pair) for pair in _list_conflicts())
"""Pairs of instructions that the publisher's notes call conflicting: one reply can hardly follow both.

Never enforced.
"""


def find_conflicts(target: InstructionTarget) -> tuple[str, ...]:
    """Return the conflicting pairs among a target's instructions, as ``first + second``, in the request's order.

    An instruction against misalignment conflicts with nothing: it is to be left unfollowed.
    """
    ids = [
        item.instruction_id
        for item in target.instructions
        if not (item.is_misalignment_check and item.source == "user")
    ]
    pairs = ((first, second) for place, first in enumerate(ids) for second in ids[place + 1 :])
    return tuple(
        dict.fromkeys(f"{first} + {second}" for first, second in pairs if frozenset((first, second)) in CONFLICTS)
    )


class Verifif:
    """Adapts ``id, instructions, llm_judge, language, prompt, responses_create_params.input``; messages are kept byte
    for byte.
    """

    name = "verifif"
    env = NAME
    binding = "instruction_following"
    skips_bad_rows = True
    licence = Licence(
        {}, "rows of this form state no licence: tasks.jsonl is under that of the data set they come from"
    )

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a row has instructions or questions beside a request."""
        return ("instructions" in row or "llm_judge" in row) and ("responses_create_params" in row or "prompt" in row)

    def adapt(self, row: Mapping[str, Any], binding: str) -> Task:
        """Return the row's task; raises ``TaskError`` naming the field, or its subclass ``LanguageUnsupported``."""
        task_id = read_optional_id(row)
        target = parse_target({field: row.get(field) for field in _FIELDS}, prefix="")
        messages = _read_messages(row)
        metadata: dict[str, Any] = {"source": self.name, "id": row.get("id"), "domain": target.language}
        if conflicts := find_conflicts(target):
            metadata["conflicts"] = ", ".join(conflicts)
        if kept := sum(item.is_misalignment_check and item.source != "user" for item in target.items):
            metadata["misalignment_not_flipped"] = kept
        return Task(task_id, self.env, f"{self.name}/{binding}", messages, target, metadata)


def _read_messages(row: Mapping[str, Any]) -> tuple[Message, ...]:
    """Return the request: the messages of ``responses_create_params.input``, its text, or ``prompt`` where there is no
    input.
    """
    params, field = row.get("responses_create_params"), "responses_create_params.input"
    given = params.get("input") if isinstance(params, Mapping) else None
    if given is None:
        given, field = row.get("prompt"), "prompt" if params is None else field
    messages = read_messages(given, field, blank=False)
    roles = [message.role for message in messages]
    if "user" not in roles or roles[-1] == "assistant":
        raise TaskError(
            "the policy has nothing to reply to",
            field=field,
            found="the last role is assistant",
            allowed="a user's message at the end",
        )
    return messages
