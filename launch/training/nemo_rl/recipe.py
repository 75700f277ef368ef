"""The recipes of a NeMo-RL checkout: found by name, read as NeMo-RL reads them, and resolved.

They are written in OmegaConf's language: besides ``launch/compose`` this module and ``config`` alone see its classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gavel.models.errors import ConfigError, find_nearest

RECIPES = "examples/configs"
_RESOLVERS: Mapping[str, Any] = {
    "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b, "max": max,
}  # fmt: skip
"""Those that NeMo-RL's own loader knows (``utils/config.py``)."""


def find_recipe(root: Path, exemplar: str, recipe: str | None) -> Path:
    """Return the YAML that a run starts from.

    Args:
        root: the checkout.
        exemplar: what is taken where no recipe is named, relative to the checkout.
        recipe: a path, a name below ``examples/configs`` or the bare name of a file there, with or without ``.yaml``.

    Raises:
        ConfigError: there is none; lists near names.
    """
    if recipe is None:
        return root / exemplar
    folder = root / RECIPES
    name = recipe if recipe.endswith((".yaml", ".yml")) else f"{recipe}.yaml"
    for place in (Path(name).expanduser(), root / name, folder / name):
        if place.is_file():
            return place
    known = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.yaml"))}
    same = [path for path in known.values() if path.name == Path(name).name]
    if len(same) == 1 and "/" not in name:
        return same[0]
    stems = {Path(one).stem: one for one in known if "grpo" in one}
    near = find_nearest(Path(name).stem, list(stems)) or [
        stem for stem in stems if Path(name).stem.lower() in stem.lower()
    ]
    raise ConfigError(
        "this checkout has no such recipe",
        field="trainer.recipe",
        found=recipe,
        where=str(folder),
        allowed=", ".join(stems[one] for one in (near or list(stems))[:10]) or "(no recipe of GRPO is there)",
        remedy=f"trainer.recipe={stems[near[0]]}" if near else "name one of them, or a path",
    )


def read_key(tree: Any, key: str) -> Any:
    """Return a value of a recipe, as it is written where it refers to another."""
    holder, _, last = key.rpartition(".")
    above = OmegaConf.select(tree, holder, throw_on_resolution_failure=False) if holder else tree
    if not isinstance(above, DictConfig) or last not in above:
        return None
    return OmegaConf.to_container(above, resolve=False)[last]  # type: ignore[call-overload, index]


def to_text(tree: DictConfig) -> str:
    """Return a tree as YAML with every interpolation resolved."""
    for name, resolver in _RESOLVERS.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)
    try:
        values = OmegaConf.to_container(tree, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as failed:
        raise ConfigError(
            "a value of the trainer's config cannot be resolved", field="trainer.overrides", found=str(failed)
        ) from None
    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120))


def make_missing_error(path: Path) -> ConfigError:
    """Return the error of a checkout that lacks its exemplar."""
    return ConfigError(
        "there is no NeMo-RL here",
        field="trainer.nemo_rl_root",
        found=f"no {path}",
        allowed="a checkout of NVIDIA-NeMo/RL",
        remedy="clone it, and set trainer.nemo_rl_root to its folder (in a file of your own: the path under "
        "`defaults`)",
    )


def load_exemplar(path: Path) -> Any:
    """Return NeMo-RL's exemplar with the files of its ``defaults`` merged in, unresolved.

    Raises:
        ConfigError: it, or a file it names, is not there.
    """
    if not path.is_file():
        raise make_missing_error(path)
    own = OmegaConf.load(path)
    assert isinstance(own, DictConfig), path
    above = own.pop("defaults", [])
    merged = OmegaConf.create({})
    for name in [above] if isinstance(above, str) else above:
        merged = _merge_trees(merged, load_exemplar(path.parent / str(name)))
    return _merge_trees(merged, own)


def _merge_trees(base: Any, top: Any) -> Any:
    """Merge as NeMo-RL does: ``_override_`` in a top-level section replaces the section below it."""
    for key in list(top):
        section = None if OmegaConf.is_missing(top, key) else top[key]
        if isinstance(section, DictConfig) and section.pop("_override_", False):
            base.pop(key, None)
    return OmegaConf.merge(base, top)
