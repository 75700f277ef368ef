"""The source ``ifeval``: rows with ``prompt``, ``instruction_id_list`` and ``kwargs``, as IFEval (Zhou et al. 2023,
arXiv:2311.07911), IFBench, NVIDIA's Nemotron-RL-instruction_following and open-instruct have them.

An instruction of such a row is graded by the check of ours that means the same. One that has none here is named, and
its row left out: a check that means something else would be a wrong reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import orjson

from gavel.envs.instruction_following.arguments import AT_LEAST
from gavel.envs.instruction_following.environment import NAME
from gavel.envs.instruction_following.instructions import INSTRUCTIONS
from gavel.envs.instruction_following.target import parse_target
from gavel.envs.messages import read_messages
from gavel.envs.sources import Licence, read_optional_id
from gavel.envs.types import Task, TaskError
from gavel.models.errors import shorten_value
from gavel.models.types import Message

SAME: Mapping[str, str] = MappingProxyType(
    {
        "change_case:english_capital": "change_case:all_caps",
        "change_case:english_lowercase": "change_case:lowercase",
        "length_constraints:number_sentences": "detectable_format:sentence_count",
    }
)
"""Instructions that are called otherwise here. Those of the same name mean the same, but for ``DIFFERENT``."""
DIFFERENT = frozenset({"length_constraints:paragraph_length"})
"""Names that both use for different things."""
TARGETS = "verifif"
"""The format of the targets, which rubrics name: the same as that of rows of NeMo Gym."""
_RENAMED: Mapping[str, str] = MappingProxyType({"section_spliter": "section_splitter"})
_AT_LEAST = frozenset({"detectable_content:number_placeholders", "detectable_format:multiple_sections"})
"""Instructions of IFEval without a relation: so many or more."""
_EQUAL = frozenset({"detectable_format:number_bullet_lists"})
"""The same: exactly so many."""


class IfEval:
    """Adapts ``key, prompt, instruction_id_list, kwargs``; a null argument counts as absent, for tables pad rows with
    them.
    """

    name = "ifeval"
    env = NAME
    binding = "instruction_following"
    skips_bad_rows = True
    licence = Licence(
        {}, "rows of this form state no licence: tasks.jsonl is under that of the data set they come from"
    )

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a row lists instructions by id, with their arguments beside them."""
        return "instruction_id_list" in row and "kwargs" in row

    def adapt(self, row: Mapping[str, Any], binding: str) -> Task:
        """Return the row's task.

        Raises:
            TaskError: names the field; also of an instruction that no check here decides.
        """
        ids, arguments = _read_lists(row)
        if lacking := [one for one in ids if _find_check(one) is None]:
            raise TaskError(
                "no check here means the same as this instruction",
                field="instruction_id_list",
                found=", ".join(lacking),
                allowed="instructions of the table (docs/instruction_following.md), and " + ", ".join(SAME),
            )
        made = [
            {"uid": place, "instruction_id": _find_check(one), "source": "user", "is_misalignment_check": False,
             "arguments": _read_arguments(one, given)}
            for place, (one, given) in enumerate(zip(ids, arguments, strict=True), 1)
        ]  # fmt: skip
        target = parse_target({"instructions": made, "language": row.get("lang") or row.get("language")}, prefix="")
        metadata: dict[str, Any] = {"source": self.name, "id": row.get("key", row.get("id")), "domain": target.language}
        return Task(_read_id(row), self.env, f"{TARGETS}/{binding}", _read_request(row), target, metadata)


def _read_id(row: Mapping[str, Any]) -> str:
    key = row.get("key")
    return read_optional_id({**row, "id": str(key)} if key is not None and row.get("id") is None else row)


def _read_lists(row: Mapping[str, Any]) -> tuple[Sequence[str], Sequence[Mapping[str, Any]]]:
    """Return ids and arguments; open-instruct writes them as a text of JSON."""
    ids, arguments = (_read_json(row[field]) for field in ("instruction_id_list", "kwargs"))
    if not isinstance(ids, list) or not ids or not all(isinstance(one, str) for one in ids):
        raise TaskError(
            "this is no list of instructions",
            field="instruction_id_list",
            found=shorten_value(row["instruction_id_list"]),
            allowed="a list of ids, one or more",
        )
    arguments = [{} if one is None else one for one in arguments] if isinstance(arguments, list) else arguments
    if not isinstance(arguments, list) or not all(isinstance(one, dict) for one in arguments):
        raise TaskError(
            "these are no arguments", field="kwargs", found=shorten_value(row["kwargs"]), allowed="a list of objects"
        )
    if len(arguments) != len(ids):
        raise TaskError(
            "each instruction has its arguments at the same place",
            field="kwargs",
            found=f"{len(arguments)} beside {len(ids)} instructions",
            allowed="as many objects as ids",
        )
    return ids, arguments


def _read_json(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def _find_check(instruction_id: str) -> str | None:
    """Return the check of ours that means the same, None where there is none."""
    name = SAME.get(instruction_id, instruction_id)
    return name if name in INSTRUCTIONS and name not in DIFFERENT else None


def _read_arguments(instruction_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
    read = {_RENAMED.get(name, name): value for name, value in given.items() if value is not None}
    if instruction_id in _AT_LEAST:
        read.setdefault("relation", AT_LEAST)
    if instruction_id in _EQUAL:
        read.setdefault("relation", "equal to")
    return read


def _read_request(row: Mapping[str, Any]) -> tuple[Message, ...]:
    """Return the request: ``prompt``, or the messages of a conversation up to the last of the user."""
    given = row.get("prompt", row.get("messages"))
    messages = read_messages(given, "prompt" if "prompt" in row else "messages", blank=False)
    while messages and messages[-1].role == "assistant":
        messages = messages[:-1]
    if not messages:
        raise TaskError("the policy has nothing to reply to", field="messages", found="no message of a user")
    return messages
