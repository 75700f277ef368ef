"""``gavel doctor``: whether this machine can train. What is wrong is told, and nothing is started or written."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

import gavel
from gavel.launch.config.schema import TrainConfig
from gavel.launch.training.interpreter import read_versions
from gavel.launch.training.nemo_rl.preflight import list_unreachable_services
from gavel.launch.training.preflight import Checked, check_run
from gavel.launch.training.trainer import UnnamedError
from gavel.launch.training.trainers import find_trainer
from gavel.models.errors import ConfigError, InputError, drop_repeated, format_findings
from gavel.models.service import get_display_name

LEAST_FREE_GB = 20.0
LEAST_PYTHON = (3, 11)
_PACKAGES = ("torch", "ray", "transformers", "vllm")


def run(config: TrainConfig, console: Console) -> int:
    """Run the verb; see ``gavel doctor --help``. Returns 0 where nothing is wrong, else 2."""
    path = Path(config.run.dir or "runs/doctor").expanduser().absolute()
    checked = check_run(config, path)
    table = Table("what", "how", title=f"gavel {gavel.__version__}", title_justify="left", show_edge=False)
    for what, how in (
        *_list_versions(config),
        *find_trainer(config.trainer.kind).describe_install(config),
        *_check_machine(config, path),
        *_check_judges(checked),
    ):
        table.add_row(what, Text(how))
    console.print(table)
    found = [one for one in checked.findings if not isinstance(one, UnnamedError)]
    if not any(isinstance(one, InputError) and one.field == "trainer.python" for one in found):
        found += _check_interpreter(config)
    found += [*_check_disk(path), *list_unreachable_services(checked.assembly)]
    found = drop_repeated(found)
    for one in found:
        console.print(Text(f"\n{one}"))
    console.print(Text("\nnothing was found wrong" if not found else f"\n{format_findings(len(found))}"))
    return ConfigError.exit_code if found else 0


def _list_versions(config: TrainConfig) -> Iterator[tuple[str, str]]:
    """The versions that matter are those of the interpreter that trains."""
    python = _choose_python(config)
    yield "Python", f"{platform.python_version()} ({sys.executable})"
    if config.cluster.container:
        return
    found = read_versions(python, _PACKAGES)
    if python != sys.executable:
        yield "the trainer's Python", f"{found.get('Python') or found['start']} ({python})"
    yield from ((name, found[name]) for name in _PACKAGES if name in found)


def _choose_python(config: TrainConfig) -> str:
    return config.trainer.python or config.cluster.python or sys.executable


def _check_interpreter(config: TrainConfig) -> Iterator[ConfigError]:
    python = _choose_python(config)
    if config.cluster.container or python == sys.executable:
        return
    found = read_versions(python, _PACKAGES)
    version = found.get("Python", "")
    if not version or tuple(int(part) for part in version.split(".")[:2]) < LEAST_PYTHON:
        yield ConfigError(
            "this interpreter cannot train",
            field="trainer.python",
            found=f"{python}: {f'Python {version}' if version else found['start']}",
            allowed=f"Python {'.'.join(map(str, LEAST_PYTHON))} or newer",
            remedy="name the interpreter that has the trainer",
        )


def _check_machine(config: TrainConfig, path: Path) -> Iterator[tuple[str, str]]:
    yield "disk", f"{_measure_free_gb(path):.0f} GB free under {_find_existing_above(path)}"
    if config.cluster.kind == "slurm":
        yield "Slurm", shutil.which("sbatch") or "no sbatch here"
    if config.cluster.container:
        image = Path(config.cluster.container)
        yield (
            "container",
            f"{image}{'' if image.exists() or '://' in str(image) or '#' in str(image) else ' (no such file here)'}",
        )


def _check_judges(checked: Checked) -> Iterator[tuple[str, str]]:
    if checked.assembly is None:
        return
    for name, service in checked.assembly.services.items():
        where = (
            "none is chosen: judge=CHOICE"
            if service.is_none
            else f"{service.model} ({service.mode}) {', '.join(service.base_urls)}"
        )
        yield f"service {get_display_name(name)}", where
    for waived in checked.unqualified:
        yield "waived", waived
    if checked.config_text and "grpo" in (values := yaml.safe_load(checked.config_text)):
        yield (
            "a step",
            f"{values['grpo'].get('num_prompts_per_step')} prompts x "
            f"{values['grpo'].get('num_generations_per_prompt')} replies",
        )


def _check_disk(path: Path) -> Iterator[ConfigError]:
    free = _measure_free_gb(path)
    if free < LEAST_FREE_GB:
        yield ConfigError(
            "checkpoints and ledgers need room",
            field="run.dir",
            found=f"{free:.1f} GB free under {_find_existing_above(path)}",
            allowed=f"at least {LEAST_FREE_GB:g} GB",
            remedy="run.dir=… on a larger disk",
        )


def _measure_free_gb(path: Path) -> float:
    return shutil.disk_usage(_find_existing_above(path)).free / 1e9


def _find_existing_above(path: Path) -> Path:
    return next((folder for folder in (path, *path.parents) if folder.exists()), Path("/"))
