"""A checkout of NeMo-RL as it lies on the disk: its commit, and whether the hooks fit it. Nothing of it is imported."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from gavel.envs.interfaces.nemo_rl.contract import (
    BASELINE,
    COLLECTOR,
    ESTIMATORS,
    NEEDED,
    NEEDED_ASYNC,
    NEEDED_GYM,
    TESTED,
)
from gavel.envs.interfaces.nemo_rl.returned import FIELDS, FURTHER
from gavel.models.codec import record
from gavel.models.errors import ConfigError

GIT_SECONDS = 10.0
_MARK = "nemo_rl/algorithms/grpo.py"


@record
class Checkout:
    """``commit`` None where git does not tell it; ``tested``: it is the one that was tested; ``missing``: what the
    hooks need and it lacks, ``missing_async`` besides for asynchronous training, ``missing_gym`` where
    NeMo Gym rolls out; ``estimators``: each advantage
    estimator by its name in ``grpo.adv_estimator.name``: exact, refused or unknown."""

    root: str
    commit: str | None
    tested: bool
    missing: tuple[str, ...]
    missing_async: tuple[str, ...]
    missing_gym: tuple[str, ...]
    estimators: dict[str, str]


def is_checkout(root: Path) -> bool:
    """Tell whether a folder holds NeMo-RL's sources."""
    return (root / _MARK).is_file()


def read_checkout(root: Path) -> Checkout:
    """Look at a checkout; takes milliseconds."""
    commit = read_commit(root)
    missing, further = tuple(_list_missing(root)), tuple(_list_missing_async(root))
    gym = tuple(_list_missing_names(root, NEEDED_GYM))
    return Checkout(str(root), commit, commit == TESTED, missing, further, gym, _find_estimators(root))


def require_contract(found: Checkout, *, asynchronous: bool = False, gym: bool = False) -> None:
    """Refuse a checkout whose code the hooks do not fit, those of asynchronous training and of NeMo Gym where that is
    wanted.

    Raises:
        ConfigError: names what is missing, and the commit that was tested.
    """
    further = (*(found.missing_async if asynchronous else ()), *(found.missing_gym if gym else ()))
    if missing := (*found.missing, *further):
        raise ConfigError(
            "the hooks do not fit this NeMo-RL, and without them an ungraded sample would be trained on as a zero",
            field="trainer.nemo_rl_root",
            found=f"{found.root} ({found.commit or 'commit not known'}) lacks {'; '.join(missing)}",
            allowed=f"NVIDIA-NeMo/RL at {TESTED}, or a later one like it; release v0.6.0 and older are too old",
            remedy=f"git -C {found.root} checkout {TESTED}",
        )


def read_commit(root: Path) -> str | None:
    """Return the commit of a checkout; None where git or its folder is not there."""
    try:
        done = subprocess.run(
            ("git", "-c", "safe.directory=*", "-C", str(root), "rev-parse", "--show-toplevel", "HEAD"),
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.split()
    # A folder inside another repository is not that repository's commit.
    return lines[1] if done.returncode == 0 and len(lines) == 2 and Path(lines[0]) == root.resolve() else None


def _list_missing_async(root: Path) -> Iterator[str]:
    yield from _list_missing_names(root, NEEDED_ASYNC)
    tree = _parse_module(root, "nemo_rl.algorithms.async_utils.trajectory_collector")
    classes = [one for one in tree.body if isinstance(one, ast.ClassDef)] if tree is not None else []
    for one in classes:
        if one.name == "AsyncTrajectoryCollector":
            defined = {each.name for each in one.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
            yield from (f"{one.name}.{name}" for name in COLLECTOR if name not in defined)


def _list_missing_names(root: Path, needed: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for module, names in needed.items():
        tree = _parse_module(root, module)
        if tree is None:
            yield f"{module} (no such module)"
            continue
        defined = set(_list_names(tree))
        yield from (f"{module}.{name}" for name in names if name not in defined)


def _list_missing(root: Path) -> Iterator[str]:
    yield from _list_missing_names(root, NEEDED)
    if (tree := _parse_module(root, "nemo_rl.environments.interfaces")) is not None and not _is_return_fitting(tree):
        yield f"EnvironmentReturn({', '.join(FIELDS)})"
    tree = _parse_module(root, "nemo_rl.algorithms.utils")
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)] if tree is not None else []
    baseline = next((one for one in functions if one.name == BASELINE), None)
    if baseline is None or "valid_mask" not in {argument.arg for argument in baseline.args.args}:
        yield f"nemo_rl.algorithms.utils.{BASELINE}(valid_mask)"


def _parse_module(root: Path, module: str) -> ast.Module | None:
    path = root.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        try:
            return ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
    return None


def _list_names(tree: ast.Module) -> Iterator[str]:
    """Yield what a module defines or imports at its top."""
    for one in tree.body:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield one.name
        elif isinstance(one, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in one.names)
        elif isinstance(one, ast.Assign):
            yield from (target.id for target in one.targets if isinstance(target, ast.Name))


def _is_return_fitting(tree: ast.Module) -> bool:
    """Tell whether ``EnvironmentReturn`` has the six fields, and further ones only that are known or have a default."""
    kind = next((one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == "EnvironmentReturn"), None)
    if kind is None:
        return False
    fields = [
        (one.target.id, one.value)
        for one in kind.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    ]
    first, further = fields[: len(FIELDS)], fields[len(FIELDS) :]
    return tuple(name for name, _ in first) == FIELDS and all(
        name in FURTHER or value is not None for name, value in further
    )


def _find_estimators(root: Path) -> dict[str, str]:
    tree = _parse_module(root, "nemo_rl.algorithms.advantage_estimator")
    found = [one.name for one in tree.body if isinstance(one, ast.ClassDef)] if tree is not None else []
    classes = [name for name in found if name.endswith("AdvantageEstimator")]
    return {ESTIMATORS.get(name, (name, ""))[0]: ESTIMATORS.get(name, ("", "unknown"))[1] for name in classes}


def read_version(root: str | None) -> str | None:
    """Return the version of a checkout of NeMo-RL, None if its file is not what it was."""
    if not root:
        return None
    try:
        text = (Path(root).expanduser() / "nemo_rl" / "package_info.py").read_text(encoding="utf-8")
    except OSError:
        return None
    numbers = dict(
        line.split(" = ") for line in text.splitlines() if line.startswith(("MAJOR = ", "MINOR = ", "PATCH = "))
    )
    return ".".join(numbers[name] for name in ("MAJOR", "MINOR", "PATCH")) if len(numbers) == 3 else None
