"""Reading a run that exists, and making another that names it as its parent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gavel.launch.config import from_yaml
from gavel.launch.running.lease import RunFolderError
from gavel.launch.running.manifest import Manifest, read_manifest
from gavel.launch.schema import RolloutConfig
from gavel.models.codec import digest, plain
from gavel.models.errors import ConfigError, nearest


def existing_run(name: str | None, verb: str) -> Path:
    """Return the folder of the run a verb works on.

    Raises:
        ConfigError: no run was named.
        RunFolderError: there is no run there.
    """
    if not name:
        raise ConfigError("no run is named", field="run.dir", remedy=f"name it: gavel {verb} runs/NAME …")
    path = Path(name).expanduser()
    if read_manifest(path) is None:
        around = [str(item) for item in path.parent.iterdir() if (item / "manifest.json").exists()] if path.parent.is_dir() else []
        near = nearest(str(path), around)
        raise RunFolderError(
            "there is no run in this folder", where=str(path), found="no manifest.json",
            remedy=f"did you mean {near[0]}?" if near else "give the folder that `gavel rollout` wrote",
        )  # fmt: skip
    return path


def config_of(path: Path) -> RolloutConfig:
    """Return the config a run was made with."""
    file = path / "config.yaml"
    return from_yaml(RolloutConfig, file.read_text(encoding="utf-8"), where=str(file))


def parent_of(path: Path, manifest: Manifest) -> dict[str, Any]:
    """Return what a child's manifest says of its parent."""
    return {"run": str(path.resolve()), "kind": manifest.kind, "identity": manifest.digests["identity"]}


def child_path(parent: Path, into: str | None, verb: str, differs: object) -> Path:
    """Return the child's folder: ``into``, or the parent's name with the verb and a digest of what differs."""
    if into:
        path = Path(into).expanduser()
        if path.resolve() == parent.resolve():
            raise ConfigError(
                "a child cannot be its own parent, which is never changed", field="into", found=into,
                remedy="name another folder, or leave into out for one that is named after the parent",
            )  # fmt: skip
        return path
    return parent.with_name(f"{parent.name}-{verb}-{digest(plain(differs))[7:15]}")


def named(options: Mapping[str, Any]) -> str:
    """Return options as words: ``tiered correct=1.0 abstain=0.5``."""
    return " ".join([str(options.get("name", "")), *(f"{key}={value}" for key, value in options.items() if key != "name")])
