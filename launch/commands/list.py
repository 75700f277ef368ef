"""``gavel list``: what can be chosen, each with the sentence that its file or docstring begins with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gavel.envs.entries import Entry, SourceEntry
from gavel.envs.plugins import find_added
from gavel.envs.registry import ENVIRONMENTS, REWARDS, SOURCES
from gavel.judges.rubrics.table import PROFILES, Profile
from gavel.launch.config.console import print_line
from gavel.launch.config.groups import list_choices
from gavel.launch.config.schema import ListConfig
from gavel.models.codec import record, to_plain
from gavel.models.errors import ConfigError, find_nearest


@record
class CatalogueItem:
    """One choice: ``choose`` is what to write on the command line, ``of`` the environment it belongs to (empty: any),
    ``file`` where it is defined."""

    kind: str
    name: str
    choose: str
    summary: str
    of: str
    file: str


KINDS: Mapping[str, str | None] = {
    "environments": "env", "rewards": "reward", "rubrics": None, "judges": "judge", "policies": "policy", "sources": "source",  # noqa: E501
    "experiments": "experiment", "trainers": "trainer", "clusters": "cluster", "failures": "failure",
}  # fmt: skip
"""Each kind with its config group; rubrics are profiles."""


def run(config: ListConfig, console: Console) -> int:
    """Run the verb; see ``gavel list --help``. Returns 0."""
    if config.what is not None and config.what not in KINDS:
        near = find_nearest(config.what, KINDS)
        raise ConfigError(
            "there is nothing of this kind",
            field="what",
            found=config.what,
            allowed=", ".join(KINDS),
            remedy=f"did you mean `gavel list {near[0]}`?" if near else "",
        )
    kinds = [config.what] if config.what is not None else list(KINDS)
    items = list(list_items([Path(folder) for folder in config.config_dirs], kinds))
    if config.format == "json":
        console.file.write(orjson.dumps(to_plain(items), option=orjson.OPT_INDENT_2).decode() + "\n")
        return 0
    for kind in kinds:
        print_line(console, f"{kind}:", style="bold")
        console.print(_make_table([item for item in items if item.kind == kind]))
    return 0


def list_items(folders: Sequence[Path], kinds: Sequence[str] = tuple(KINDS)) -> Iterator[CatalogueItem]:
    """Yield every choice of these kinds, by kind and name.

    Args:
        folders: where config groups are looked for, as ``gavel.launch.config.groups.search_path`` returns them.
        kinds: of ``KINDS``.
    """
    for kind in kinds:
        group = KINDS[kind]
        yield from _list_profiles() if group is None else _list_choices(kind, group, folders)


def _list_profiles() -> Iterator[CatalogueItem]:
    for name, profile in {**PROFILES, **_find_added_rubrics()}.items():
        about = re.sub(r"^Profiles? [^:]*: ", "", profile.about)
        yield CatalogueItem(
            "rubrics",
            name,
            f"rubrics.NAME.profile={name}",
            _capitalise(_extract_sentence(about.splitlines())),
            "",
            profile.build.__module__,
        )


def _find_added_rubrics() -> Mapping[str, Profile]:
    try:
        return find_added("rubric")
    except ConfigError:  # an installed package that cannot be loaded: whoever names its rubric is told why
        return {}


def _list_choices(kind: str, group: str, folders: Sequence[Path]) -> Iterator[CatalogueItem]:
    owner = _OWNERS.get(group, _find_no_owner)
    for name in list_choices(group, folders):
        file = next(path for folder in folders if (path := folder / group / f"{name}.yaml").is_file())
        try:
            of = owner(name)
        except ConfigError:  # an installed package that cannot be loaded: whoever chooses it is told why
            of = ""
        yield CatalogueItem(
            kind, name, f"{group}={name}", _strip_owner(of, _extract_sentence(_read_comment(file))), of, str(file)
        )


def _read_comment(file: Path) -> list[str]:
    """Return the comment a config file begins with, without ``# @package`` lines."""
    lines: list[str] = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.startswith("#") and (line.strip() or lines):
            break
        text = line[1:].removeprefix(" ")
        if line.startswith("#") and not text.startswith("@package"):
            lines.append(text)
    return lines


def _extract_sentence(lines: Sequence[str]) -> str:
    """Return the first line, and as much of the next ones as its last sentence needs, without one that leads to a
    command.
    """
    text = lines[0].strip() if lines else ""
    for line in lines[1:]:
        if not text or text.endswith((".", ":", "!", "?")) or not line.strip() or line.startswith(" "):
            break
        head, stop, _ = line.partition(". ")
        text = f"{text} {head}{stop.strip()}"
        if stop:
            break
    whole, stop, last = text.rpartition(". ")
    if text.endswith(":"):
        return f"{whole}." if stop else f"{last[:-1]}."
    return text


def _strip_owner(of: str, summary: str) -> str:
    """Return a summary without the environment's name in front, which is shown besides."""
    name = of.replace("_", " ").capitalize()
    return summary.removeprefix(f"{name}. ") if of else summary


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def _get_package(entry: Entry) -> str:
    return entry.module.rpartition(".")[0]


def _find_no_owner(_: str) -> str:
    return ""


def _find_reward_owner(name: str) -> str:
    ours = name in REWARDS
    environments, rewards = (ENVIRONMENTS, REWARDS) if ours else (find_added("env"), find_added("reward"))
    entry = rewards.get(name)
    return next(
        (env for env, made in environments.items() if entry is not None and _get_package(made) == _get_package(entry)),
        "",
    )


def _find_source_owner(name: str) -> str:
    found: SourceEntry | None = SOURCES.get(name) or find_added("source").get(name)
    return (found.env or "") if found is not None else ""


_OWNERS: Mapping[str, Callable[[str], str]] = {"reward": _find_reward_owner, "source": _find_source_owner}


def _make_table(items: Sequence[CatalogueItem]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for item in items:
        of = f"[{item.of}] " if item.of else ""
        table.add_row(Text(item.choose), Text(f"{of}{item.summary}"))
    return table
