"""The interpreter that NeMo-RL runs in: whether it has what the driver and the actors import, and whether a toy group
comes through the hooks there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from gavel.envs.interfaces.nemo_rl.contract import TESTED
from gavel.launch.training.interpreter import ask_interpreter, join_python_path
from gavel.launch.training.render import make_python_path
from gavel.models.codec import decode
from gavel.models.errors import ConfigError

IMPORT_SECONDS, TOY_SECONDS = 60.0, 180.0
NEEDED = (
    "aiohttp",
    "orjson",
    "pydantic",
    "omegaconf",
    "yaml",
    "gavel.envs.interfaces.nemo_rl.actor",
    "ray",
    "torch",
    "nemo_rl",
)
"""What the driver and the actors import, in the trainer's interpreter."""


def check_imports(python: str, root: Path, *, toy: bool) -> Iterator[ConfigError]:
    """Yield what an interpreter lacks for a checkout; ``toy``: also let a toy group come through the hooks."""
    paths = make_python_path(str(root))
    found = find_missing_imports(python, paths)
    if not found and toy and (problem := describe_failures(run_toy_group(python, paths))):
        yield ConfigError(
            "a toy group with a lost sample does not come through this checkout as it should",
            field="trainer.nemo_rl_root",
            found=f"{root}: {problem}",
            allowed=f"NVIDIA-NeMo/RL at {TESTED}, or one like it",
            remedy="see what it is: gavel doctor",
        )
    if found:
        yield ConfigError(
            "this interpreter lacks what the trainer needs",
            field="trainer.python",
            found=f"{python}: {found}",
            remedy="name the interpreter NeMo-RL runs with, and install gavel's dependencies there",
        )


@cache
def find_missing_imports(python: str, paths: tuple[str, ...]) -> str:
    """Import what driver and actors need, in their interpreter; say what fails, each module named; empty if all is
    there.

    Asked once per process: the points of a sweep share an interpreter.
    """
    script = (
        "import importlib\n"
        f"for name in {NEEDED!r}:\n"
        "    try: importlib.import_module(name)\n"
        "    except BaseException as failed: print(f'{name} ({type(failed).__name__}: {failed})'.splitlines()[0])\n"
    )
    variables = {"PYTHONPATH": join_python_path(paths)}
    answered = ask_interpreter(python, ("-c", script), seconds=IMPORT_SECONDS, variables=variables)
    return "; ".join(answered.out.splitlines()) or answered.problem


@cache
def run_toy_group(python: str, paths: tuple[str, ...]) -> Mapping[str, str]:
    """Let a trainer's interpreter run ``toy_group``. Asked once per process.

    Args:
        python: the interpreter that has NeMo-RL.
        paths: folders that it must find: ours, and the checkout.

    Returns:
        By the name of what was checked, what is wrong with it, empty where nothing is; ``start`` alone where it could
        not run.
    """
    words = ("-m", "gavel.launch.training.nemo_rl.toy_group")
    variables = {"PYTHONPATH": join_python_path(paths), "CUDA_VISIBLE_DEVICES": ""}
    answered = ask_interpreter(python, words, seconds=TOY_SECONDS, variables=variables)
    try:
        return decode(dict[str, str], answered.out.strip().encode())
    except ValueError:
        return {"start": answered.problem or "it says nothing of the hooks"}


def describe_failures(found: Mapping[str, str]) -> str:
    """Return in one line what a toy group found wrong; empty where nothing is."""
    return "; ".join(f"{name}: {problem}" for name, problem in found.items() if problem)


def describe_hooks(python: str, paths: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Tell of each hook whether a toy group comes through."""
    for name, problem in run_toy_group(python, paths).items():
        yield f"toy group: {name}", f"failed: {problem}" if problem else "ok"
