"""The tasks of an environment that makes them itself: written with a manifest, models started only where an opening
needs one.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from gavel.envs.preparing import Form, write_files
from gavel.envs.registry import Generator, make_generator
from gavel.envs.types import Task
from gavel.judges.bindings import Binding
from gavel.judges.judge import BoundJudges
from gavel.judges.types import Rubric
from gavel.launch.assembly.assemble import make_asset_store
from gavel.launch.config.schema import PrepareConfig
from gavel.models.errors import ConfigError, InputError
from gavel.models.failures import ModelFailure
from gavel.models.pool import open_services
from gavel.models.service import Service
from gavel.models.types import ChatModel

Say = Callable[[str], None]


def choose_out_folder(config: PrepareConfig, say: Say) -> Path:
    """Return the folder of the tasks; says so where it is not the user's choice, before anything else is said of it."""
    out = Path(config.out or f"data/{config.env['name']}").expanduser()
    if config.out is None:
        say(f"tasks {'would go' if config.dry_run else 'go'} into {out}; out=DIR chooses another folder")
    return out


def choose_form(config: PrepareConfig) -> Form:
    """Return what adds the files of the config's format to those of a prepared folder."""
    if config.format == "gavel":
        return lambda files: files
    from gavel.envs.interfaces.nemo_gym.export import with_gym_rows

    return partial(with_gym_rows, agent=config.agent)


def generate_tasks(config: PrepareConfig, rubrics: Mapping[str, Rubric], say: Say) -> int:
    """Make and write the tasks; return the exit code.

    Args:
        config: of ``gavel prepare``.
        rubrics: the configured rubrics, made; empty in a dry run.
        say: told each step.

    Raises:
        ConfigError: an option does not fit, or a needed service is not declared.
        InputError: an opening could not be had, or the folder cannot be written.
    """
    out = choose_out_folder(config, say)
    if config.dry_run:
        say(f"dry run: nothing was written; the tasks of env={config.env['name']} would go into {out}")
        return 0
    bindings = {
        name: Binding(name, item.judges[0], rubrics[item.rubric]) for name, item in config.judging.bindings.items()
    }
    generator = make_generator(config.env, config.source, BoundJudges(bindings, _refuse_model))
    tasks = asyncio.run(_make_tasks(generator, config, out, say))
    files = choose_form(config)(generator.contents(tasks))
    for name, path in zip(files, write_files(out, files), strict=True):
        say(f"wrote {path}, SHA-256 {hashlib.sha256(files[name]).hexdigest()}")
    say(f"{len(tasks)} tasks")
    return 0


def _refuse_model(name: str) -> ChatModel:
    raise AssertionError(f"service {name} is called while tasks are made")


async def _make_tasks(generator: Generator, config: PrepareConfig, out: Path, say: Say) -> tuple[Task, ...]:
    needed = _list_needed(generator, config)
    if not needed:
        return await generator.tasks({})
    store = make_asset_store(config.assets)
    opened = open_services(
        needed, log_dir=out / "logs", progress=say, assets_cache=store.cache, mirror=store.mirror, offline=store.offline
    )
    async with opened as pool:
        try:
            return await generator.tasks(pool.models)
        except* ModelFailure as failed:
            first: BaseException = failed
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            raise InputError(
                "an opening could not be had, nothing was written",
                found=str(first),
                remedy="mend the service and prepare again",
            ) from None


def _list_needed(generator: Generator, config: PrepareConfig) -> dict[str, Service]:
    for name in generator.services:
        if name not in config.services:
            raise ConfigError(
                "this service is needed and not declared",
                field=f"services.{name}",
                allowed=", ".join(config.services) or "(none)",
                remedy=f"declare it: services.{name}.mode=external services.{name}.base_url=… services.{name}.model=…",
            )
    return {name: config.services[name] for name in generator.services}
