"""``gavel new env NAME`` and ``gavel new rubric NAME``: files that work, to begin with."""

from __future__ import annotations

import builtins
import importlib.util
import keyword
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from rich.console import Console

from gavel.envs.plugins import find_added
from gavel.envs.registry import ENVIRONMENTS, REWARDS
from gavel.launch.config.console import print_line
from gavel.launch.config.groups import PACKAGE
from gavel.launch.config.schema import NewConfig
from gavel.launch.runs.files import write_whole
from gavel.models.errors import ConfigError, shorten_value

_TEMPLATES = "launch/templates"
FILES = {
    "pyproject.toml.j2": "pyproject.toml",
    "README.md.j2": "README.md",
    "__init__.py.j2": "{name}/__init__.py",
    "environment.py.j2": "{name}/environment.py",
    "rewards.py.j2": "{name}/rewards.py",
    "env.yaml.j2": "{name}/conf/env/{name}.yaml",
    "reward.yaml.j2": "{name}/conf/reward/{name}.yaml",
    "samples.jsonl.j2": "{name}/data/samples.jsonl",
    "test.py.j2": "tests/test_{name}.py",
}
"""Each template of an environment with the file it becomes."""
RUBRIC_FILES = {
    "rubric.yaml.j2": "{name}.yaml",
    "prompt.txt.j2": "{name}.txt",
    "controls.jsonl.j2": "{name}.controls.jsonl",
    "rows.jsonl.j2": "rows.jsonl",
    "test.py.j2": "test_{name}.py",
}
"""Each template of a rubric with the file it becomes."""
PAIR_FILES = {template: path for template, path in RUBRIC_FILES.items() if path != "rows.jsonl"}
"""The same for a rubric of pairs; its rows are those of the runs that meet."""
KINDS = {"env": FILES, "rubric": RUBRIC_FILES, "pair": PAIR_FILES}
_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_LONGEST = 40
_VALUES = frozenset(("null", "true", "false", "yes", "no", "on", "off", "inf", "nan", "y", "n"))
_RULE = (
    f"a small letter, then small letters, digits and single underscores, at most {_LONGEST}; "
    "no word of Python, no module, no name of gavel"
)


def run(config: NewConfig, console: Console) -> int:
    """Run the verb; see ``gavel new --help``. Returns 0."""
    if config.what not in KINDS:
        raise ConfigError(
            "only an environment, a rubric or a rubric of pairs can be begun",
            field="what",
            found=config.what or "nothing",
            allowed=", ".join(KINDS),
            remedy="write: gavel new env NAME, gavel new rubric NAME, or gavel new pair NAME",
        )
    name = check_name(config.name, config.what)
    folder = Path(config.into or name).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            "this place is taken, and nothing is overwritten",
            where=str(folder),
            field="into",
            allowed="a new or an empty folder",
            remedy="name another with into=…, or another NAME",
        )
    files = render_files(name, config.what)
    _write_files(folder, files)
    for path in files:
        print_line(console, f"written: {folder / path}")
    place = shlex.quote(str(folder))
    if config.what != "env":
        words = shlex.quote(f"rubrics.{name}.file={folder / name}.yaml")
        rows = shlex.quote(f"tasks.path={folder / 'rows.jsonl'}")
        print_line(
            console,
            f"next: gavel probe {words} dry_run=true shows its prompts; docs/own_grading.md says what each field means",
        )
        run = "gavel duel RUN_A RUN_B" if config.what == "pair" else f"gavel rollout {rows}"
        ends = "judge=smollm2" if config.what == "pair" else "policy=smollm2 judge=smollm2"
        print_line(console, f"a run: {run} {words} {ends}")
        return 0
    package = shlex.quote(f"{folder}[dev]")  # a shell may read brackets as a pattern
    print_line(
        console,
        f"next: pip install -e {package}, then: python -m pytest {place}; {folder / 'README.md'} says how to "
        f"grade with it",
    )
    return 0


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write all files or none: a folder that was begun only would be taken for somebody's work the next time."""
    place = folder.resolve()  # where a link leads
    place.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        building.chmod(0o755)
        for path, text in files.items():
            (building / path).parent.mkdir(parents=True, exist_ok=True)
            write_whole(building / path, text.encode())
        building.rename(place)  # takes the place of an empty folder
    finally:
        shutil.rmtree(building, ignore_errors=True)


def check_name(name: str | None, what: str = "env") -> str:
    """Return the name of a new environment or rubric.

    Raises:
        ConfigError: it breaks the rule; says which part of it.
    """
    if name is None:
        raise ConfigError("no name is given", field="name", allowed=_RULE, remedy=f"write: gavel new {what} NAME")
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        better = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_0123456789")[:_LONGEST].strip("_")
        raise _make_name_error(
            "this is no name for it", name, f"for example {better}" if _NAME.fullmatch(better) else ""
        )
    if keyword.iskeyword(name) or keyword.issoftkeyword(name) or hasattr(builtins, name):
        raise _make_name_error("this is a word of Python", name)
    if name in _VALUES:
        raise _make_name_error("this is a value in YAML and on the command line, not a name", name)
    if what != "env":
        return name  # files in a folder: no module and no package of this name is made
    taken = {**ENVIRONMENTS, **REWARDS, **find_added("env"), **find_added("reward")}
    if name in taken:
        raise _make_name_error("an environment or a reward of this name is there already", name)
    spec = importlib.util.find_spec(name)  # a folder alone, such as one begun here before, has no origin
    if name in ("tests", "conf") or (spec is not None and spec.origin is not None):
        raise _make_name_error("a Python module of this name is there already", name)
    if any(True for _ in metadata.distributions(name=name)):
        raise _make_name_error("a package of this name is installed already, and would be replaced", name)
    return name


def _make_name_error(problem: str, name: str, remedy: str = "") -> ConfigError:
    return ConfigError(
        problem, field="name", found=shorten_value(name), allowed=_RULE, remedy=remedy or "choose another"
    )


def render_files(name: str, what: str = "env") -> dict[str, str]:
    """Return the files of a new environment or rubric by their paths in its folder."""
    made = Environment(
        loader=FileSystemLoader(PACKAGE / _TEMPLATES / f"new_{what}"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    values = {"name": name, "cls": "".join(part.capitalize() for part in name.split("_"))}
    return {
        path.format(name=name): made.get_template(template).render(values) for template, path in KINDS[what].items()
    }
