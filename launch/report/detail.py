"""One row's whole story as plain JSON: transcript, checks, judge prompts and raw replies, receipts, rewards side by
side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gavel.envs.types import Outcome, RewardError
from gavel.judges.bindings import Binding
from gavel.launch.report.entry import ReportEntry, make_outcome
from gavel.launch.report.rewards import NamedReward, list_rewards
from gavel.launch.report.source import ReportSource
from gavel.models.codec import to_plain
from gavel.models.service import get_display_name

_WORTH_SHARING = 400
"""Characters of a rubric's fixed text from which on it is kept once for all rows."""
_OWN_PLACE = ("items", "answers", "judge_reply", "reasoning", "yes_reasoning", "path")
"""Details that have a place of their own on the page."""


@dataclass(slots=True)
class Stories:
    """Makes stories; ``heads`` are the rubrics' fixed texts, which prompts refer to by their number."""

    source: ReportSource
    bindings: Mapping[str, Binding]
    rewards: Sequence[NamedReward]
    heads: list[str] = field(default_factory=list)
    _known: dict[tuple[str, int], int] = field(default_factory=dict)

    @classmethod
    def from_source(cls, source: ReportSource) -> Stories:
        """Return the maker for a run; without its rubrics (not fetched, or another version's) prompts are shown as
        their slots.
        """
        return cls(source, source.read_bindings(), list_rewards(source.env, source.reward))

    def make_story(self, entry: ReportEntry) -> dict[str, Any]:
        """Return the story of a row's newest attempt."""
        row = self.source.read_row(entry.place)
        task = self.source.read_task(entry.task_id)
        texts = _Texts()
        details = dict(row["outcome"]["details"] or {})
        answers = [self._describe_answer(answer, texts) for answer in self.source.read_answers(entry)]
        return {
            "number": entry.number,
            "status": row["status"],
            "label": row["outcome"]["label"],
            "failure": row["outcome"]["failure"],
            "messages": [_describe_message(message) for message in row["transcript"]["messages"]],
            "checks": _describe_checks(row["outcome"]["checks"], details.get("items")),
            "steps": details.get("answers") or [],
            "details": {name: value for name, value in details.items() if name not in _OWN_PLACE},
            "raw": details.get("judge_reply") if not answers else None,
            "answers": answers,
            "texts": texts.found,
            "receipts": [_describe_receipt(receipt) for receipt in row["receipts"]],
            "reward": row["reward"],
            "rewards": self._list_rewards(row["outcome"]),
            "timing": row["timing"],
            "metadata": row["metadata"],
            "digests": {"task": row["task_digest"], **row["digests"]},
            "target": task.get("target"),
            "earlier": self._list_earlier(entry),
        }

    def _describe_answer(self, answer: Mapping[str, Any], texts: _Texts) -> dict[str, Any]:
        binding = self.bindings.get(answer["binding"])
        same = binding is not None and binding.rubric.digest == answer["rubric_digest"]
        return {
            "binding": answer["binding"],
            "profile": binding.rubric.profile if binding is not None else "",
            "prompt": self._describe_prompt(binding, answer["slots"], texts) if binding is not None and same else None,
            "slots": None if same else {name: texts.place_text(text) for name, text in answer["slots"].items()},
            "raw": answer["raw"],
            "calls": [receipt["call_id"] for receipt in answer["receipts"]],
        }

    def _describe_prompt(self, binding: Binding, slots: Mapping[str, str], texts: _Texts) -> list[dict[str, Any]]:
        """Return the messages as sent: ``head`` the number of the fixed text they begin with, ``text`` the place of the
        rest.
        """
        made = []
        for place, message in enumerate(binding.rubric.render(slots)):
            head = self._place_head(binding, place, message.content)
            rest = message.content if head is None else message.content[len(self.heads[head]) :]
            made.append({"role": message.role, "head": head, "text": texts.place_text(rest)})
        return made

    def _place_head(self, binding: Binding, place: int, text: str) -> int | None:
        key = (binding.name, place)
        if key not in self._known:
            blank = binding.rubric.render(dict.fromkeys(binding.rubric.slots, ""))
            fixed = _find_common(text, blank[place].content) if place < len(blank) else ""
            fixed = fixed[: fixed.rfind("\n") + 1]
            self._known[key] = len(self.heads) if len(fixed) >= _WORTH_SHARING else -1
            if len(fixed) >= _WORTH_SHARING:
                self.heads.append(fixed)
        head = self._known[key]
        return head if head >= 0 and text.startswith(self.heads[head]) else None

    def _list_rewards(self, raw: Mapping[str, Any]) -> list[dict[str, Any]]:
        if raw["failure"] is not None:
            return []
        outcome = make_outcome(raw)
        return [_describe_reward(reward, outcome) for reward in self.rewards]

    def _list_earlier(self, entry: ReportEntry) -> list[dict[str, Any]]:
        places = self.source.list_attempts(entry)
        rows = [self.source.read_row(place) for place in places if place != entry.place]
        return [
            {
                "attempt": row["attempt"],
                "label": row["outcome"]["label"],
                "failure": row["outcome"]["failure"],
                "started": row["timing"]["started"],
            }
            for row in rows
        ]


def _find_common(one: str, other: str) -> str:
    """Return what both texts begin with."""
    same = next(
        (place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(other)),
    )
    return one[:same]


class _Texts:
    """The texts of one story, each once: a conversation that is judged by twenty questions is not stored twenty
    times.
    """

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place_text(self, text: str) -> int:
        return self._places.setdefault(text, len(self._places))

    @property
    def found(self) -> list[str]:
        return list(self._places)


def _describe_reward(reward: NamedReward, outcome: Outcome) -> dict[str, Any]:
    head = {"name": reward.name, "options": reward.options, "own": reward.own}
    try:
        made = reward.policy.reward(outcome)
    except RewardError as refused:
        return {**head, "refused": refused.problem}
    return {**head, "value": made.value, "components": to_plain(made.components)}


def _describe_message(message: Mapping[str, Any]) -> dict[str, Any]:
    reply = message["reply"] or {}
    return {
        "role": message["role"],
        "text": message["content"],
        "policy": message["reply"] is not None,
        "reasoning": reply.get("reasoning"),
        "finish": reply.get("finish_reason"),
        "model": reply.get("model"),
        "tokens": (reply.get("usage") or {}).get("completion_tokens"),
    }


def _describe_checks(
    checks: Sequence[Mapping[str, Any]], items: Sequence[Mapping[str, Any]] | None
) -> list[dict[str, Any]]:
    """Return the checks, each with what its environment knows of it besides."""
    facts: Iterable[Mapping[str, Any]] = (
        items if items is not None and len(items) == len(checks) else [{}] * len(checks)
    )
    return [
        {**check, "facts": {key: fact[key] for key in fact if key != "name"}}
        for check, fact in zip(checks, facts, strict=True)
    ]


def _describe_receipt(receipt: Mapping[str, Any]) -> dict[str, Any]:
    named = {**receipt, "service": get_display_name(receipt["service"])}
    return {key: value for key, value in named.items() if value not in (None, [], {}, False)}
