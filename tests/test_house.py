"""The rules of the house that a machine can check: who imports whom, sizes, links, and words that must not be in a
file.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("models", "judges", "envs", "launch")
"""Each may import itself and those before it: contracts in pyproject.toml, which `make check` runs."""
LINKED = (*LAYERS, "slurm", "conf")
MAX_LINES = 500
MAX_FUNCTION_LINES = 60


def sources(*folders: str) -> list[Path]:
    return sorted(
        path for folder in folders for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts
    )


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted name of every import, wherever it stands; ``from gavel import x`` is ``gavel.x``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_nothing_imports_a_folder_by_its_top_level_name() -> None:
    for path in sources(*LAYERS, "benchmarks", "examples"):
        tops = {name.split(".")[0] for name in imported(ast.parse(path.read_text()))}
        assert tops & set(LINKED) == set(), path


def test_no_file_is_longer_than_500_lines_and_no_function_than_60() -> None:
    for path in sources(*LAYERS, "tests", "benchmarks"):
        text = path.read_text()
        assert len(text.splitlines()) <= MAX_LINES, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < MAX_FUNCTION_LINES, f"{path}: {node.name}"


def test_launch_has_at_most_twelve_rooms_and_no_file_imports_itself_by_a_detour() -> None:
    assert sum(entry.is_dir() and entry.name != "__pycache__" for entry in (ROOT / "launch").iterdir()) <= 12
    files = {".".join(("gavel", *path.relative_to(ROOT).with_suffix("").parts)): path for path in sources(*LAYERS)}
    uses = {
        name: {found for one in imported(ast.parse(path.read_text())) if (found := find_module(one, files)) != name}
        for name, path in files.items()
    }
    left = {name: {one for one in used if one is not None} for name, used in uses.items()}
    while free := [name for name, used in left.items() if not used & left.keys()]:
        for name in free:
            del left[name]
    assert sorted(left) == [], "these import each other, or what does"


def find_module(name: str, files: Mapping[str, Path]) -> str | None:
    """Return the file that an imported name is, or is in."""
    return name if name in files else head if (head := name.rpartition(".")[0]) in files else None


def test_no_public_class_has_the_name_of_another() -> None:
    names = Counter(
        node.name
        for path in sources(*LAYERS)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_nothing_prints_without_saying_why() -> None:
    for path in sources(*LAYERS):
        lines = path.read_text().splitlines()
        calls = [node for node in ast.walk(ast.parse("\n".join(lines))) if isinstance(node, ast.Call)]
        prints = [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
        assert [number for number in prints if "noqa: T201" not in lines[number - 1]] == [], path


def test_the_package_is_its_version_a_marker_and_one_relative_link_per_folder() -> None:
    package = ROOT / "src" / "gavel"
    for name in LINKED:
        assert (package / name).is_symlink(), name
        assert (package / name).readlink() == Path("../..", name)
    rest = {entry.name for entry in package.iterdir()} - set(LINKED) - {"__pycache__"}
    assert rest == {"__init__.py", "py.typed"}


def test_configs_are_yaml_only() -> None:
    files = [path for path in (ROOT / "conf").rglob("*") if path.is_file()]
    assert files
    assert {path.suffix for path in files} == {".yaml"}


def committed() -> Iterator[Path]:
    """Yield every text file of ours outside hidden and generated folders."""
    kinds = {".py", ".yaml", ".md", ".toml", ".txt", ".j2", ".json", ""}
    for folder in (*LINKED, "tests", "benchmarks", "examples", "docs", ".ci", "."):
        walk = (ROOT / folder).iterdir() if folder == "." else (ROOT / folder).rglob("*")
        yield from (
            path for path in walk if path.is_file() and path.suffix in kinds and "__pycache__" not in path.parts
        )


def test_only_tests_look_beside_the_repository() -> None:
    outside = "../" + "shared"
    for path in committed():
        if path.is_relative_to(ROOT / "tests"):
            continue
        assert outside not in path.read_text(encoding="utf-8"), path
