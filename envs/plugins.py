"""Environments of other packages: an installed distribution declares a ``Plugin`` as an entry point of the group
``gavel.plugins``.

The entry point's value is ``package:NAME``; the folder ``conf`` of that package is searched for config groups, after
ours. Nothing of a plugin is imported until a name is asked for that we do not have, or everything is listed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gavel.models.errors import ConfigError

if TYPE_CHECKING:
    from gavel.envs.entries import Entry, SourceEntry
    from gavel.judges.rubrics.table import Profile

GROUP = "gavel.plugins"


@dataclass(frozen=True, slots=True)
class Plugin:
    """What a package adds to the tables of ``gavel.envs.registry`` and ``gavel.judges.rubrics.table``, by name; a name
    of ours cannot be taken. A rubric of a file: ``rubrics={form.name: make_form_profile(form)}``, ``form`` from
    ``read_rubric_file``."""

    environments: Mapping[str, Entry] = field(default_factory=dict)
    rewards: Mapping[str, Entry] = field(default_factory=dict)
    sources: Mapping[str, SourceEntry] = field(default_factory=dict)
    rubrics: Mapping[str, Profile] = field(default_factory=dict)
    content_notes: Mapping[str, str] = field(default_factory=dict)


TABLES = {"env": "environments", "reward": "rewards", "source": "sources", "rubric": "rubrics"}
"""The table of a plugin for each config group; rubrics have none, and are named by ``rubrics.NAME.profile``."""


_FIELDS = {"rubric": "rubrics.NAME.profile"}


def find_added_rubrics(names: Iterable[str]) -> Mapping[str, Profile]:
    """Return the rubric profiles that plugins add, none where all ``names`` are ours: no plugin is imported then.

    Raises:
        ConfigError: a plugin cannot be imported, or two have one name.
    """
    from gavel.judges.rubrics.table import PROFILES  # whoever only lists folders needs no rubric

    return find_added("rubric") if any(name and name not in PROFILES for name in names) else {}


def list_installed() -> tuple[EntryPoint, ...]:
    """Return the entry points of the installed plugins, by name."""
    return tuple(sorted(entry_points(group=GROUP), key=lambda point: point.name))


def list_conf_folders() -> tuple[Path, ...]:
    """Return the config folders of the installed plugins; imports none of them."""
    found = (_find_folder(point) for point in list_installed())
    return tuple(
        dict.fromkeys(folder / "conf" for folder in found if folder is not None and (folder / "conf").is_dir())
    )


def _find_folder(point: EntryPoint) -> Path | None:
    spec = importlib.util.find_spec(point.module.partition(".")[0])
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(places[0]) if places else None


def find_added(group: str) -> dict[str, Any]:
    """Return the entries that plugins add to a group of ``TABLES``; empty for any other.

    Raises:
        ConfigError: a plugin cannot be imported, or two have one name.
    """
    table = TABLES.get(group)
    entries: dict[str, Any] = {}
    for point, plugin in _load_plugins() if table is not None else ():
        for name, entry in getattr(plugin, str(table)).items():
            if name in entries:
                raise ConfigError(
                    f"two installed packages have a {group} of this name",
                    field=_FIELDS.get(group, f"{group}.name"),
                    found=name,
                    remedy=f"uninstall one of them; the second is {_get_name(point)}",
                )
            entries[name] = entry
    return entries


def find_note(env: object) -> str | None:
    """Return the content note of a plugin's environment, or None."""
    return next(
        (
            plugin.content_notes[env]
            for _, plugin in _load_plugins()
            if isinstance(env, str) and env in plugin.content_notes
        ),
        None,
    )


def _load_plugins() -> Iterator[tuple[EntryPoint, Plugin]]:
    for point in list_installed():
        try:
            plugin = point.load()
        except Exception as failed:  # another package's code: whatever it raises is said with its name
            raise _make_broken_error(point, f"{type(failed).__name__}: {failed}") from failed
        if not isinstance(plugin, Plugin):
            raise _make_broken_error(point, f"it is a {type(plugin).__name__}, not a gavel.envs.plugins.Plugin")
        yield point, plugin


def _make_broken_error(point: EntryPoint, reason: str) -> ConfigError:
    return ConfigError(
        f"an installed package declares environments that cannot be loaded: {reason}",
        where=f"{_get_name(point)} ({point.value})",
        field=f"entry point {GROUP}",
        remedy=f"mend it, or uninstall it: pip uninstall {_get_name(point)}",
    )


def _get_name(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.name
