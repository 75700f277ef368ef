"""What a rollout may send, in tokens and money, before anything is sent: upper bounds under assumptions that are
said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gavel.envs.types import Task
from gavel.judges.bindings import Binding, parse_verifier
from gavel.launch.assembly.assemble import Assembly
from gavel.launch.runs.accounting import show_money
from gavel.launch.runs.inputs import PlannedRow
from gavel.models.calls.meter import BYTES_PER_TOKEN
from gavel.models.service import Service, get_config_key


@dataclass(frozen=True, slots=True)
class Estimate:
    """``calls`` of one service; ``prompt`` and ``completion`` are tokens of all of them, ``completion`` None where
    nothing bounds them: no output limit is set here, or for the policy whose reply is judged."""

    calls: int = 0
    prompt: int = 0
    completion: int | None = 0

    def add_call(self, prompt: int, limit: int | None) -> Estimate:
        """Return the estimate with one more call."""
        completion = None if limit is None or self.completion is None else self.completion + limit
        return Estimate(self.calls + 1, self.prompt + prompt, completion)


def estimate_calls(rows: Sequence[PlannedRow], assembly: Assembly) -> dict[str, Estimate]:
    """Return by service what one reply of the policy and one question to the judge cost for each row.

    Args:
        rows: what is to be played.
        assembly: the services and bindings; a row whose task asks no judge counts none.
    """
    found: dict[str, Estimate] = {}
    policy = assembly.services["policy"]
    limit = _compute_limit(policy, policy.sampling.max_response_tokens)
    overheads = {name: _count_tokens(*_render_own_text(binding)) for name, binding in assembly.bindings.items()}
    for row in rows:
        prompt = _count_prompt_tokens(row.task)
        found["policy"] = found.get("policy", Estimate()).add_call(prompt, limit)
        info = assembly.environment.info
        names = (parse_verifier(row.task.verifier)[1], *info.also_binds) if info.asks_judge(row.task) else ()
        for binding in (assembly.bindings[name] for name in names if name in assembly.bindings):
            questions = info.count_questions(row.task, binding.name)
            asked = overheads[binding.name] + prompt + (limit or 0)
            for one in _list_asked(binding):
                answer = (
                    _compute_limit(one.judge, one.rubric.sampling.max_response_tokens) if limit is not None else None
                )
                for _ in range(questions):
                    found[one.service] = found.get(one.service, Estimate()).add_call(asked, answer)
    return found


def _list_asked(binding: Binding) -> list[Binding]:
    """Return who is asked at most: every member of a panel, of a cascade the first as often as it samples."""
    again = binding.rule.samples - 1 if binding.rule is not None else 0
    return [*binding.judges, *binding.judges[:1] * again]


def describe_estimate(found: Mapping[str, Estimate], services: Mapping[str, Service]) -> list[tuple[str, str]]:
    """Return the lines of a plan: tokens by service, money by service and together, and what both assume."""
    lines = [("tokens, estimated", _describe_tokens(name, one)) for name, one in found.items()]
    money = {name: amount for name, one in found.items() if (amount := _compute_money(one, services[name])) is not None}
    for name, amount in money.items():
        price = services[name].price
        lines.append(
            (
                "money, estimated",
                f"{get_config_key(name)}: at most {show_money(amount, price.currency if price else None)}",
            )
        )
    currencies = {price.currency for name in money if (price := services[name].price) is not None}
    if len(money) > 1 and len(money) == len(found) and len(currencies) == 1:
        lines.append(("", f"together: at most {show_money(sum(money.values()), *currencies)}"))
    lines += [("", _explain_no_money(name, services[name])) for name in found if name not in money]
    lines.append(("", _ASSUMED))
    return lines


_ASSUMED = (
    f"assumed: {BYTES_PER_TOKEN} bytes a token, one reply of the policy and one question to the judge for each row, "
    f"every reply as "
    "long as its limit; more turns or questions, tries again and simulators come on top, caches take away"
)


def _explain_no_money(name: str, service: Service) -> str:
    key = get_config_key(name)
    return (
        f"{key}: an output limit is missing, so there is no bound"
        if service.price
        else f"{key}: no price is set ({key}.price={{input: …, output: …}})"
    )


def _describe_tokens(name: str, one: Estimate) -> str:
    out = "nothing bounds what comes out" if one.completion is None else f"at most {one.completion} out"
    return f"{get_config_key(name)}: {one.calls} calls, about {one.prompt} in, {out}"


def _compute_money(one: Estimate, service: Service) -> float | None:
    if service.price is None or one.completion is None:
        return None
    return service.price.compute_cost(one.prompt, one.completion)


def _compute_limit(service: Service | None, answer: int | None) -> int | None:
    return None if answer is None else answer + (service.thinking_tokens if service is not None else 0)


def _count_prompt_tokens(task: Task) -> int:
    return _count_tokens(*(message.content for message in task.messages))


def _render_own_text(binding: Binding) -> list[str]:
    return [message.content for message in binding.rubric.render(dict.fromkeys(binding.rubric.slots, ""))]


def _count_tokens(*texts: str) -> int:
    return sum(len(text.encode("utf-8", "replace")) for text in texts) // BYTES_PER_TOKEN
