"""The config groups and their choices, read from folders of YAML files alone, since Hydra takes long to import."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import gavel
from gavel.envs.plugins import list_conf_folders
from gavel.models.errors import ConfigError

PACKAGE = Path(gavel.__file__).parent
CONF = PACKAGE / "conf"


def search_path(config_dirs: Iterable[str | Path] = ()) -> tuple[Path, ...]:
    """Return the absolute folders configs are looked for in: the user's, the package's, those of installed plugins.

    Raises:
        ConfigError: a folder does not exist.
    """
    folders = [Path(folder).expanduser().absolute() for folder in config_dirs]
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(
                "there is no such folder",
                field="--config-dir",
                found=str(folder),
                remedy="give a folder that holds config groups, for example my_conf with my_conf/policy/mine.yaml",
            )
    return (*folders, CONF, *list_conf_folders())


def list_groups(folders: Sequence[Path]) -> tuple[str, ...]:
    """Return the names of all groups, sorted."""
    return tuple(
        sorted({entry.name for folder in folders for entry in folder.iterdir() if entry.is_dir()} - {"__pycache__"})
    )


def list_choices(group: str, folders: Sequence[Path]) -> tuple[str, ...]:
    """Return the choices of one group, sorted; those in subfolders as ``folder/name``."""
    found = {
        path.relative_to(folder / group)
        for folder in folders
        for path in (folder / group).rglob("*.yaml")
        if path.is_file()
    }
    return tuple(sorted(path.with_suffix("").as_posix() for path in found))
