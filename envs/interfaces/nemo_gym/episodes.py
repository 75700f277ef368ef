"""How the replies of a row that is played here are drawn: the service's own sampling, with what the row says
otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gavel.envs.types import TaskError
from gavel.models.errors import shorten_value
from gavel.models.types import Sampling

_UNSUPPORTED = ("instructions", "tools", "previous_response_id", "prompt", "conversation")
"""Fields of a request that the policy's call has no place for; empty ones say nothing."""
_NUMBERS = {"temperature": "temperature", "top_p": "top_p", "max_output_tokens": "max_response_tokens"}


def read_sampling(params: Any, base: Sampling) -> Sampling:
    """Return how a row's replies are drawn: ``base``, with what the row's ``responses_create_params`` set.

    Raises:
        TaskError: no object, a field that the policy's call has no place for, or a number that is none.
    """
    if not isinstance(params, Mapping):
        raise TaskError(
            "this is not an object", field="responses_create_params", found=shorten_value(params), allowed="an object"
        )
    for name in _UNSUPPORTED:
        if params.get(name):
            raise TaskError(
                "a row played here cannot set this field",
                field=f"responses_create_params.{name}",
                found=shorten_value(params[name]),
                allowed="input, temperature, top_p, max_output_tokens, reasoning.effort",
                remedy="put instructions into `input` as a system message; let an agent of Gym's play rows with tools",
            )
    found: dict[str, Any] = {}
    for name, own in _NUMBERS.items():
        value = params.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int if own == "max_response_tokens" else int | float):
            raise TaskError(
                "this is no number",
                field=f"responses_create_params.{name}",
                found=shorten_value(value),
                allowed="a number",
            )
        found[own] = value
    reasoning = params.get("reasoning")
    if isinstance(reasoning, Mapping) and isinstance(reasoning.get("effort"), str):
        found["reasoning_effort"] = reasoning["effort"]
    return replace(base, **found) if found else base
