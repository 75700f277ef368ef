"""What a trainer is to ``gavel train``: one record of functions a kind. ``trainers.py`` has the table of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gavel.envs.assembly import Assembly
from gavel.launch.config.schema import TrainConfig
from gavel.launch.training.layout import Layout
from gavel.models.codec import record
from gavel.models.errors import ConfigError, GavelError

SECTION = "gavel"
"""Our own section of a trainer's config: the run's folder, the trainer's kind."""

Rows = Iterator[tuple[str, str]]
"""Lines of a table for the user: what, and how it is."""


@record
class Planned:
    """The steps a training takes.

    Attributes:
        steps: at most so many; None where its config does not say.
        exact: it also takes no fewer.
        per_epoch: steps of one pass over the tasks; None where passes do not bound it or are not known.
        epochs: the passes, as ``per_epoch``.
        traced: it leaves the number of each step behind, in its ledger or as a checkpoint.
    """

    steps: int | None
    exact: bool
    per_epoch: int | None = None
    epochs: int | None = None
    traced: bool = True


class UnnamedError(ConfigError):
    """Something that a training needs and nobody has named yet."""


@dataclass(frozen=True, slots=True)
class ComposedTraining:
    """A training whose parts were assembled; ``path`` is its run folder, ``assembly`` joins all its environments."""

    config: TrainConfig
    assembly: Assembly
    layout: Layout
    path: Path


@dataclass(frozen=True, slots=True)
class Trainer:
    """One kind of trainer.

    Attributes:
        check: yields what its options and this machine lack, before anything is assembled.
        render: returns the name and the text of the config it is started with. Raises ConfigError.
        make_command: returns the words that start it; ``{config}`` and ``{run}`` are replaced.
        plan_steps: returns the steps that its config, read again, asks for.
        is_renderable: tells whether what ``check`` found leaves enough to render a config at all.
        check_config: returns what is wrong with a rendered text.
        describe: yields lines on a training for a dry run; the text is empty where it could not be rendered, the flag
            tells whether a judge is asked.
        describe_install: yields lines on what is installed, for ``gavel doctor``.
        on_ray: it needs Ray on every node.
        on_cpu: its policy takes no GPU.
        several: it can train in several environments at once.
    """

    check: Callable[[TrainConfig], Iterator[GavelError]]
    render: Callable[[ComposedTraining], tuple[str, str]]
    make_command: Callable[[TrainConfig], tuple[str, ...]]
    plan_steps: Callable[[Mapping[str, Any]], Planned]
    is_renderable: Callable[[TrainConfig], bool] = lambda _: True
    check_config: Callable[[ComposedTraining, str], Iterable[GavelError]] = lambda *_: ()
    describe: Callable[[ComposedTraining, str, bool], Rows] = lambda *_: iter(())
    describe_install: Callable[[TrainConfig], Rows] = lambda _: iter(())
    on_ray: bool = False
    on_cpu: bool = False
    several: bool = False


def read_section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a section of a trainer's config; nothing where it is no mapping."""
    section = config.get(name)
    return section if isinstance(section, Mapping) else {}
