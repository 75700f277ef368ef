"""The source ``nemo_abstention_v1``: rows of ``nvidia/Nemotron-RL-QA-Abstention-v1``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast, get_args

from gavel.envs.abstention.answers import MORE, is_written_list, read_target
from gavel.envs.abstention.environment import NAME
from gavel.envs.sources import Licence, read_json_cell, read_optional_id, read_text_field, slice_value
from gavel.envs.types import Task, TaskError
from gavel.models.errors import shorten_value
from gavel.models.types import Message, Role

DATASET = "nvidia/Nemotron-RL-QA-Abstention-v1"
_ROLES = get_args(Role)
_DOMAINS = (
    (re.compile(r"law-"), "law"),
    (re.compile(r"health-"), "health"),
    (re.compile(r"(?:[a-z0-9+#.]{1,20}-)?swe-"), "software"),  # go-swe-…, and the like for other languages
    (re.compile(r"[0-9a-f]{16,64}\Z"), "general"),  # multi-hop questions with bare hexadecimal ids
)
"""Domain by how an id starts, inferred from the public rows."""


def find_domain(task_id: str) -> str:
    """Return the domain an id tells: ``law``, ``health``, ``software``, ``general``, or ``other``."""
    return next((domain for pattern, domain in _DOMAINS if pattern.match(task_id)), "other")


class NemoAbstentionV1:
    """Adapts ``id, question, answer, responses_create_params.input``; messages are kept byte for byte."""

    name = "nemo_abstention_v1"
    env = NAME
    binding = "abstention"
    skips_bad_rows = False
    licence = Licence(
        {"dataset card": "CC BY 4.0", "rows": "CC BY-SA 4.0"},
        f"rows of {DATASET}, as their ids say; the publisher's dataset card says CC BY 4.0, the rows say CC BY-SA 4.0: "
        "tasks.jsonl holds these texts; until the publisher settles it, "
        "pass it on only under terms that satisfy both (attribution and share-alike)",
    )

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a row has most of the format's fields."""
        answered = any(field in row for field in ("answer", "answerable", *MORE))
        return ("question" in row) + answered + ("responses_create_params" in row) >= 2

    def published(self, dataset: str | None, task_ids: Iterable[str]) -> bool:
        """Tell whether the rows seem to be the publisher's; an id of a person's own is mostly in none of its
        domains.
        """
        return dataset == DATASET or any(find_domain(task_id) != "other" for task_id in task_ids)

    def adapt(self, row: Mapping[str, Any], binding: str) -> Task:
        """Return the row's task; raises ``TaskError`` naming the field."""
        task_id = read_optional_id(row)
        target = read_target(row)
        given = _read_input(row)
        domain = slice_value(row, "domain") or find_domain(task_id)
        metadata: dict[str, Any] = {"source": self.name, "id": row.get("id"), "domain": domain, "judge_query": given}
        if any(isinstance(row.get(field), str) and is_written_list(row[field]) for field in ("answer", *MORE)):
            metadata["answers_listed_in_a_text"] = True
        return Task(task_id, self.env, f"{self.name}/{binding}", _read_messages(given), target, metadata)


def _read_input(row: Mapping[str, Any]) -> list[Any]:
    params = read_json_cell(row.get("responses_create_params"))
    field = "responses_create_params.input"
    if params is None and "prompt" in row:
        roles = (("system", "system"), ("prompt", "user"))
        return [
            {"role": role, "content": read_text_field(row, name)} for name, role in roles if row.get(name) is not None
        ]
    if not isinstance(params, Mapping) or "input" not in params:
        raise TaskError(
            "this field is missing",
            field=field,
            found=f"the fields {', '.join(sorted(row))}",
            allowed="a list of messages: what the policy is asked, word for word",
            remedy='"responses_create_params": {"input": [{"role": "user", "content": "…"}]}, or "prompt": "…" and, '
            "if there is one, "
            '"system": "…"; docs/prepare.md has a whole row',
        )
    given = read_json_cell(params["input"])
    if not isinstance(given, list) or not given:
        raise TaskError(
            "these are no messages", field=field, found=shorten_value(given), allowed="a list of at least one message"
        )
    return given


def _read_messages(given: list[Any]) -> tuple[Message, ...]:
    messages = tuple(_read_message(item, f"responses_create_params.input.{index}.") for index, item in enumerate(given))
    if not any(message.role == "user" for message in messages):
        raise TaskError(
            "no message asks anything",
            field="responses_create_params.input",
            found=f"roles {', '.join(m.role for m in messages)}",
            allowed="at least one user message",
        )
    return messages


def _read_message(item: Any, prefix: str) -> Message:
    if not isinstance(item, Mapping):
        raise TaskError(
            "this is not a message", field=prefix.rstrip("."), found=shorten_value(item), allowed="{role, content}"
        )
    role = read_text_field(item, "role", prefix=prefix)
    if role not in _ROLES:
        raise TaskError("there is no such role", field=f"{prefix}role", found=role, allowed=", ".join(_ROLES))
    return Message(cast("Role", role), read_text_field(item, "content", prefix=prefix))
