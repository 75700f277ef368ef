"""Reading a run that exists, and making another that names it as its parent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gavel.launch.config.schema import RolloutConfig
from gavel.launch.config.stored import from_yaml
from gavel.launch.runs.child_name import make_child_name
from gavel.launch.runs.existing import find_existing_run
from gavel.launch.runs.manifest import Manifest
from gavel.models.errors import ConfigError

__all__ = ["describe_parent", "find_existing_run", "format_options", "make_child_path", "read_run_config"]


def read_run_config(path: Path) -> RolloutConfig:
    """Return the config a run was made with."""
    file = path / "config.yaml"
    return from_yaml(RolloutConfig, file.read_text(encoding="utf-8"), where=str(file))


def describe_parent(path: Path, manifest: Manifest) -> dict[str, Any]:
    """Return what a child's manifest says of its parent."""
    return {"run": str(path.resolve()), "kind": manifest.kind, "identity": manifest.digests["identity"]}


def make_child_path(parent: Path, into: str | None, verb: str, changed: str) -> Path:
    """Return the child's folder: ``into``, or the parent's name with the verb and what was changed."""
    if into:
        path = Path(into).expanduser()
        if path.resolve() == parent.resolve():
            raise ConfigError(
                "a child cannot be its own parent, which is never changed",
                field="into",
                found=into,
                remedy="name another folder, or leave into out for one that is named after the parent",
            )
        return path
    return parent.with_name(make_child_name(parent.name, verb, changed))


def format_options(options: Mapping[str, Any]) -> str:
    """Return options as words: ``tiered correct=1.0 abstain=0.5``."""
    return " ".join(
        [str(options.get("name", "")), *(f"{key}={value}" for key, value in options.items() if key != "name")]
    )
