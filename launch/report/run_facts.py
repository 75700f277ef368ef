"""What a report says of a rollout besides its rows: what it is made of, and the figures of its last finished
session.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gavel.launch.config.schema import RolloutConfig
from gavel.launch.runs.accounting import ServiceAccount, describe_money
from gavel.launch.runs.child import format_options
from gavel.launch.runs.manifest import Manifest
from gavel.models.codec import decode
from gavel.models.errors import InputError
from gavel.models.files import read_object


def read_metrics(path: Path) -> tuple[Mapping[str, Any], bool]:
    """Return what the last finished session wrote, and whether rows came after it."""
    file, results = path / "metrics.json", path / "results.jsonl"
    try:
        stale = results.exists() and results.stat().st_mtime > file.stat().st_mtime
    except OSError:
        return {}, False
    stored = read_object(file)
    return stored, stale and bool(stored)


def describe_run(env: str, manifest: Manifest, config: RolloutConfig | None) -> dict[str, str]:
    """Return what a run is made of, in words."""
    identity = manifest.identity
    facts = {
        "environment": env,
        "policy": str(identity.policy.get("model") or ""),
        **{f"judge ({name})": str(binding.get("judge") or "") for name, binding in identity.bindings.items()},
        "reward": format_options(manifest.reward),
    }
    if config is not None:
        facts |= {f"rubric {name}": rubric.profile for name, rubric in config.rubrics.items()}
        facts["sampling"] = _describe_sampling(identity.policy.get("sampling"))
        facts["rollouts per task"] = str(config.rollouts_per_task)
    if manifest.ablation:
        facts["ablation"] = manifest.ablation
    if manifest.parent:
        facts[f"{manifest.kind} of"] = str(manifest.parent.get("run", ""))
    facts["shard"] = manifest.shard or ""
    facts["merged from"] = ", ".join(str(part.get("run", "")) for part in manifest.merged)
    facts["made by"] = f"gavel {manifest.gavel}"
    return {name: value for name, value in facts.items() if value}


def describe_cost(metrics: Mapping[str, Any]) -> str:
    """Return what the calls cost in money, of the content of ``metrics.json``; empty where no service has a price."""
    try:
        services = {name: decode(ServiceAccount, cost) for name, cost in metrics.get("services", {}).items()}
        whole = decode(ServiceAccount, metrics["cost"]) if metrics.get("cost") else None
    except InputError:
        return ""  # not written by us
    return describe_money(services, whole)


def _describe_sampling(sampling: object) -> str:
    if not isinstance(sampling, Mapping):
        return ""
    return ", ".join(f"{name} {value}" for name, value in sampling.items() if value not in (None, (), [], {}))
