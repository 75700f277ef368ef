"""A result as the reply to Gym's ``/verify`` and ``/run``: what is measured, what is masked, what is tried again.

A graded row has its reward. A row that could not be graded has ``reward`` 0.0, which Gym's form demands, and is masked
in both places that are read (``mask_sample``, ``instance_config.mask_sample``):

- A task that is not valid stays in the results: no later attempt can help, and the run should tell that it was there.
- Every other failure has ``_ng_failure_class``, so that Gym's collector puts the row beside the results and tries it
again when it resumes. Where only the judge failed, the class is ``judge_failed``, which ``gym eval reverify
  --judge-failed-only`` recovers without the policy; ``failure_kind`` says more.
- A kind that no later attempt can help is marked ``_ng_failure_terminal``.
- What we stopped ourselves has ``_ng_no_persist``: the collector writes nothing, and absence means retry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gavel.envs.interfaces.nemo_gym.aggregate import RESULT
from gavel.envs.interfaces.nemo_gym.shapes import Shape
from gavel.envs.types import Result, Transcript
from gavel.models.failures import KINDS, Failure, FailureKind

FALLBACK = 0.0
REASON_LIMIT = 2000
_STOPPED = (FailureKind.SHUTDOWN, FailureKind.CANCELLED)
_STALE = frozenset(
    ("mask_sample", "failure_kind", "failure_reason", "should_skip_rollout", "reward", RESULT, "_ng_no_persist")
)
_REPEATED = frozenset(("judge_query",))
"""Metadata that repeats the request, which the row holds already."""


def make_reply(body: Mapping[str, Any], response: Any, result: Result, shape: Shape, target: Any) -> dict[str, Any]:
    """Return the reply: the row as it came, ``response``, and what was found.

    Args:
        body: the row; its fields are echoed, except for those of an earlier verdict.
        response: the Responses object that was graded.
        result: of grading it.
        shape: the environment's field names.
        target: the task's parsed target, None where the task is not valid.
    """
    failure = result.outcome.failure
    return {
        **{name: value for name, value in body.items() if not (name in _STALE or name.startswith("_ng_failure_"))},
        "response": response,
        **shape.reply(result.outcome, target),
        RESULT: _trim_result(result),
        **(
            {"reward": result.reward.value, "label": result.outcome.label, **_collect_measures(body)}
            if result.reward
            else {}
        ),
        **(_make_masked(body, result, failure) if failure else {}),
    }


def _trim_result(result: Result) -> Result:
    metadata = {name: value for name, value in result.metadata.items() if name not in _REPEATED}
    return replace(result, transcript=Transcript(), metadata=metadata)


def _collect_measures(body: Mapping[str, Any]) -> dict[str, Any]:
    config = body.get("instance_config")
    if isinstance(config, Mapping) and config.get("mask_sample"):  # of an earlier verdict
        return {"mask_sample": False, "instance_config": {**config, "mask_sample": False}}
    return {"mask_sample": False}


def _make_masked(body: Mapping[str, Any], result: Result, failure: Failure) -> dict[str, Any]:
    config = body.get("instance_config")
    reason = failure.reason[:REASON_LIMIT]
    made: dict[str, Any] = {
        "reward": FALLBACK,
        "mask_sample": True,
        "failure_kind": str(failure.kind),
        "failure_reason": reason,
        "instance_config": {**(config if isinstance(config, Mapping) else {}), "mask_sample": True},
    }
    if result.status == "invalid_task" or failure.stage == "task":
        return {**made, "should_skip_rollout": True}
    judged = failure.stage == "judge" and not KINDS[failure.kind].terminal
    made |= {
        "_ng_failure_class": str(FailureKind.JUDGE_FAILED if judged else failure.kind),
        "_ng_failure_message": reason,
        "_ng_failure_stage": "agent" if failure.stage in ("policy", "simulator") else "verification",
    }
    if judged:
        made["_ng_failure_judge_error"] = reason
    if KINDS[failure.kind].terminal:
        made["_ng_failure_terminal"] = True
    return {**made, "_ng_no_persist": True} if failure.kind in _STOPPED else made
