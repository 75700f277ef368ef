"""What makes a run the same run: tasks, environment, models, rubrics. Not URLs, limits, paths or the reward policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gavel.judges.bindings import Binding
from gavel.launch.runs.lease import RunFolderError
from gavel.models.codec import record, to_plain
from gavel.models.errors import shorten_value
from gavel.models.service import Service


@record
class RunIdentity:
    """``env``: its options; ``policy``: model and sampling; ``bindings``: per binding the judge and the rubric's
    digest.
    """

    env: Mapping[str, Any]
    policy: Mapping[str, Any]
    services: Mapping[str, str]
    bindings: Mapping[str, Mapping[str, Any]]


def make_identity(
    env: Mapping[str, Any], policy: Service, services: Mapping[str, Service], bindings: Mapping[str, Binding]
) -> RunIdentity:
    """Return the identity of a composition; ``services`` are those of the environment besides policy and judges."""
    return RunIdentity(
        env=to_plain(dict(env)),
        policy={
            "model": policy.model,
            "revision": policy.revision,
            "identity": policy.identity,
            "sampling": to_plain(policy.sampling),
        },
        services={name: service.identity for name, service in services.items()},
        bindings={name: _describe_binding(binding) for name, binding in bindings.items()},
    )


def _describe_binding(binding: Binding) -> dict[str, Any]:
    judge = binding.judge
    found: dict[str, Any] = {
        "judge": binding.model if binding.rule is not None else judge.model if judge else None,
        "revision": judge.revision if judge else None,
        "identity": judge.identity if judge else None,
        "rubric": binding.rubric.digest,
    }
    if binding.rule is not None:
        found["members"] = {member.service: _describe_binding(member) for member in binding.members}
    return found


_DIGESTS = ("identity", "rubric")


def list_differences(old: object, new: object, path: str = "") -> list[str]:
    """Name each leaf that differs between two plain JSON values, as ``path: old -> new``; digests only where nothing
    else tells.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        names = [*old, *(name for name in new if name not in old)]
        found = {
            name: list_differences(old.get(name), new.get(name), f"{path}.{name}" if path else name) for name in names
        }
        told = any(lines for name, lines in found.items() if name not in _DIGESTS)
        return [line for name, lines in found.items() for line in lines if not (told and name in _DIGESTS)]
    return [] if old == new else [f"{path}: {shorten_value(old, 60)} -> {shorten_value(new, 60)}"]


REMEDIES = {
    "rollout": "name a new folder with run.dir=…, or go back to what the run was made with (its config.yaml)",
    "regrade": "to grade every row with another judge or rubric: only=all into=NEW_FOLDER",
}


def check_identity(folder: str, old: Mapping[str, Any], new: RunIdentity, verb: str = "rollout") -> None:
    """Refuse to go on with a run under another identity.

    Raises:
        RunFolderError: says what changed.
    """
    changed = list_differences(old, to_plain(new))
    if changed:
        raise RunFolderError(
            "this run was made with another identity, and rows of two identities cannot be compared",
            where=folder,
            field="identity",
            found="; ".join(changed[:6]) + (f" (and {len(changed) - 6} more)" if changed[6:] else ""),
            remedy=REMEDIES.get(verb, REMEDIES["rollout"]),
        )
