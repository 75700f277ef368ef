"""Where Hydra ends: a verb and its overrides go in, a frozen dataclass comes out. No verb sees a DictConfig.

Hydra chooses and merges the group files; keys, types and choices are checked here against the schema, because Hydra
takes any type and answers a misspelled key with the advice to add it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from hydra import compose as compose_groups
from hydra import initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gavel.envs.registry import check_reward
from gavel.launch.compose.environments import join_environments, split_words
from gavel.launch.compose.overrides import GroupChoice, Removal, Setting, read_override, read_value
from gavel.launch.compose.rubric_files import bind_rubric_files, find_meant_groups, read_rubric_files
from gavel.launch.compose.run_sections import check_begun, read_own_sections
from gavel.launch.compose.services import check_read, check_services
from gavel.launch.compose.verbs import GROUPS, VERBS, find_verb
from gavel.launch.config import schema as schemas
from gavel.launch.config.errors import explain_error
from gavel.launch.config.groups import list_choices, list_groups, search_path
from gavel.launch.config.keys import check_keys, find_place
from gavel.launch.config.literals import escape_interpolation, refuse_resolvers
from gavel.models.codec import decode
from gavel.models.errors import ConfigError, find_nearest, shorten_value


def compose_config(
    verb: str, overrides: Sequence[str] = (), config_dirs: Iterable[str | Path] = (), runs: Sequence[str] = ()
) -> Any:
    """Compose the config of a verb.

    Args:
        verb: a name of ``gavel.launch.compose.verbs.VERBS``.
        overrides: ``key=value``, ``group=choice``, ``group@path.of.key=choice``, ``~key``; later ones win.
        config_dirs: folders searched before the package's own configs.
        runs: the run folders given as words of their own; like ``run.dir=…``, or ``runs=[…]`` for a verb of several. A
            run that is there gives the parts of its own config that ``read_own_sections`` names.

    Returns:
        The verb's dataclass of ``gavel.launch.config.schema``, frozen, interpolations resolved, services checked.

    Raises:
        ConfigError: a word, key, type, choice or service that does not fit; names the key and the nearest valid ones.
    """
    if verb == "train":
        shared, own = split_words(overrides)
        if own:
            return join_environments(shared, own, lambda words: compose_config(verb, words, config_dirs, runs))
    spec = find_verb(verb)
    schema = _get_schema(verb)
    folders = search_path(config_dirs)
    words = [_read_named_run(_read_word(word, list_groups(folders)), schema) for word in overrides]
    if runs:
        words += _name_runs(verb, runs)
    chosen = [word for word in words if isinstance(word, GroupChoice)]
    settings = [word.key for word in words if not isinstance(word, GroupChoice)]
    if "env" in spec.groups and not runs:
        chosen += find_meant_groups(verb, words, folders)
    for choice in chosen:
        _check_choice(spec.name, schema, choice, folders)
    tree = _merge_groups(verb, chosen, folders)
    if any(field.name == "config_dirs" for field in fields(schema)):
        tree["config_dirs"] = [str(folder) for folder in folders]
    if len(runs) == 1:
        if verb == "rollout":
            check_begun(runs[0], bool(chosen), OmegaConf.select(tree, "tasks.path"), settings)
        for name, value in read_own_sections(verb, runs[0], [choice.group for choice in chosen], settings).items():
            tree[name] = escape_interpolation(value)
    try:
        for word in words:
            if not isinstance(word, GroupChoice):
                _apply_word(tree, schema, spec.groups, word)
        bind_rubric_files(tree)
        values = _resolve_sections(tree, schema)
    except OmegaConfBaseException as failed:
        raise explain_error(failed) from None
    check_keys(schema, values)
    config = decode(schema, values, error=ConfigError)
    if (rubrics := getattr(config, "rubrics", None)) is not None:
        config = read_rubric_files(config, rubrics, folders, settings)
    check_read(verb, config, settings)
    if isinstance(config, schemas.Composition) and (reward := getattr(config, "reward", None)) is not None:
        check_reward(config.env.get("name"), reward)
    check_services(verb, config)
    return config


def has_key(verb: str, key: str) -> bool:
    """Tell whether the first name of a word's key is a section, key or group of a verb; of one that there is not,
    anything is.
    """
    first = key.partition(".")[0].partition("@")[0]
    return (
        verb not in VERBS
        or first in ("run", *VERBS[verb].groups)
        or any(field.name == first for field in fields(_get_schema(verb)))
    )


def _read_word(word: str, known: tuple[str, ...]) -> GroupChoice | Setting | Removal:
    """Read one word; one with a ``/`` before its ``=`` is a path, for no key has one."""
    before, equals, _ = word.partition("=")
    if equals and "/" in before:
        raise ConfigError(
            "this word is a path, not KEY=VALUE",
            found=shorten_value(word),
            remedy=f"name a run folder that has = in its path by its key: run.dir='{word}'",
        )
    return read_override(word, known)


def _read_named_run(word: GroupChoice | Setting | Removal, schema: type[Any]) -> GroupChoice | Setting | Removal:
    """Let ``run=DIR`` mean ``run.dir=DIR``."""
    if not isinstance(word, Setting) or word.key != "run" or word.text.lstrip().startswith(("{", "$")):
        return word
    return Setting("run.dir", word.text) if any(field.name == "run" for field in fields(schema)) else word


def _name_runs(verb: str, runs: Sequence[str]) -> list[Setting]:
    places = VERBS[verb].words
    if places == ("runs",):
        return [Setting("runs", f"[{','.join(_quote_text(run) for run in runs)}]")]
    if len(runs) > len(places):
        allowed = "one run folder" if places == ("run.dir",) else " ".join(place.upper() for place in places)
        raise ConfigError(
            "a word that is no key=value",
            found=runs[len(places)],
            allowed=f"{allowed}, then key=value, as in `gavel {verb} {' '.join(runs[: len(places)])} …`",
            remedy="write key=value, or remove it",
        )
    return [Setting(place, _quote_path(run)) for place, run in zip(places, runs, strict=False)]


def _get_schema(verb: str) -> type[Any]:
    module, _, name = VERBS[verb].schema.rpartition(".")
    return getattr(import_module(module) if module else schemas, name)  # type: ignore[no-any-return]


def _check_choice(verb: str, schema: type[Any], choice: GroupChoice, folders: Sequence[Path]) -> None:
    usable = VERBS[verb].groups
    sections = {field.name for field in fields(schema)}
    if choice.package is not None:
        find_place(schema, choice.package, {})
    elif choice.group not in usable and (choice.group in GROUPS or choice.group not in sections):
        raise ConfigError(
            f"`gavel {verb}` has no use for this group",
            field=choice.group,
            found=shorten_value(choice.choice),
            allowed=", ".join(usable),
            remedy="remove it",
        )
    known = list_choices(choice.group, folders)
    needed = choice.package is not None or (
        choice.group in sections and not find_place(schema, choice.group, {}).may_be_none
    )
    if choice.choice is None and needed:
        raise ConfigError(
            f"no {choice.group} is chosen",
            field=choice.package or choice.group,
            found="null",
            allowed=", ".join(known),
            remedy=f"choose one, for example {choice.group}={known[0]}" if known else "remove it",
        )
    if choice.choice is not None and choice.choice not in known:
        near = find_nearest(choice.choice, known)
        raise ConfigError(
            "there is no such choice",
            field=choice.group,
            found=choice.choice,
            allowed=", ".join(known),
            remedy=_suggest_choice(choice.group, near, choice.group in sections),
        )


def _suggest_choice(group: str, near: Sequence[str], has_keys: bool) -> str:
    if near:
        return f"did you mean {group}={near[0]}?"
    keys = f", or set a key: {group}.KEY=VALUE" if has_keys else ""
    own = f", or give the folder that holds {group}/NAME.yaml: --config-dir DIR" if not has_keys else ""
    return f"choose one{keys}{own}"


def _merge_groups(verb: str, chosen: Sequence[GroupChoice], folders: Sequence[Path]) -> DictConfig:
    """Let Hydra read the primary config and the group files; the first folder that has a file wins."""
    last = {_group_key(choice): choice.choice for choice in chosen}
    # Where null may be chosen it is the default already, and Hydra cannot read the word.
    words = {key: f"{key}={choice}" for key, choice in last.items() if choice is not None}
    words["hydra.searchpath"] = f"hydra.searchpath=[{','.join(_quote_text(f'file://{folder}') for folder in folders)}]"
    with TemporaryDirectory(prefix="gavel-") as main:
        # Hydra wants the primary config in its main folder, and searches that first; so the main folder holds nothing
        # else.
        primary = next(folder / f"{verb}.yaml" for folder in folders if (folder / f"{verb}.yaml").is_file())
        shutil.copyfile(primary, Path(main, primary.name))
        try:
            with initialize_config_dir(main, job_name="gavel", version_base="1.3"):
                tree = compose_groups(verb, list(words.values()))
        except (HydraException, OmegaConfBaseException, yaml.YAMLError) as failed:
            # Every choice on the command line was checked, so what is wrong is in a file: the experiment, if there is
            # one.
            files = [
                f"experiment/{choice.choice}.yaml"
                for choice in chosen
                if choice.group == "experiment" and choice.choice
            ]
            raise explain_error(failed, files[-1] if files else "") from None
        except UnicodeDecodeError as failed:
            raise ConfigError(
                f"this file is not UTF-8: {failed.reason} at byte {failed.start}",
                where=_find_not_utf8(folders),
                allowed="UTF-8",
                remedy="save it as UTF-8",
            ) from None
    OmegaConf.set_struct(tree, False)
    return tree


def _find_not_utf8(folders: Sequence[Path]) -> str:
    """Return the first config file that cannot be decoded; the reader does not say which it was."""
    for path in (path for folder in folders for path in sorted(folder.rglob("*.yaml"))):
        try:
            path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            return str(path)
    return ""


def _group_key(choice: GroupChoice) -> str:
    """Return the word Hydra wants: a group that the primary config does not list is added."""
    if choice.package is None and choice.group in GROUPS:
        return choice.group
    return f"+{choice.group}" + (f"@{choice.package}" if choice.package else "")


def _quote_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _quote_path(path: str) -> str:
    """Return a path as a value that keys of text take as it stands."""
    return "'" + str(escape_interpolation(path)).replace("'", "\\'") + "'"


def _apply_word(tree: DictConfig, schema: type[Any], verb_groups: Iterable[str], word: Setting | Removal) -> None:
    names = [*(field.name for field in fields(schema)), *verb_groups]
    if "." not in word.key and word.key not in names and (near := find_nearest(word.key, names)):
        raise ConfigError(
            "there is no such key or group",
            field=word.key,
            allowed=", ".join(dict.fromkeys(names)),
            remedy=f"did you mean `{near[0]}`?",
        )
    place = find_place(schema, word.key, _to_readable(tree))
    if isinstance(word, Setting):
        value = read_value(word, place)
        refuse_resolvers(value, word.key)
        OmegaConf.update(tree, word.key, value, merge=True, force_add=True)
        return
    above, _, last = word.key.rpartition(".")
    holder = OmegaConf.select(tree, above) if above else tree
    if not isinstance(holder, DictConfig) or last not in holder:
        raise ConfigError("there is nothing to remove", field=word.key)
    del holder[last]


def _to_readable(tree: DictConfig) -> Mapping[str, Any]:
    return OmegaConf.to_container(tree, resolve=False)  # type: ignore[return-value]


def _resolve_sections(tree: DictConfig, schema: type[Any]) -> dict[str, Any]:
    """Resolve the sections of this verb.

    Those of other verbs are left out, so that one experiment file serves several verbs.
    """
    mine = {field.name for field in fields(schema)}
    others = {field.name for verb in VERBS for field in fields(_get_schema(verb))} - mine
    return {str(name): _to_plain(tree, str(name)) for name in tree if name not in others}


def _to_plain(tree: DictConfig, name: str) -> Any:
    value = tree[name]
    if not OmegaConf.is_config(value):
        return value
    return OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
