"""What an entry of the tables of environments, rewards and sources is: a module and the names in it, imported when
asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from gavel.envs.sources import SourceAdapter
from gavel.models.codec import record


@record
class Entry:
    """Where a choice lives: ``config`` (a ``@record`` class) and ``make`` (a callable) in ``module``."""

    module: str
    config: str
    make: str

    def load_parts(self) -> tuple[type[Any], Any]:
        """Import the module; return the config class and the maker."""
        module = import_module(self.module)
        return getattr(module, self.config), getattr(module, self.make)


@record
class SourceEntry:
    """Where a source's adapter lives, and which environment's rows it adapts; None: those of the environment it is made
    for.
    """

    module: str
    adapter: str
    env: str | None

    def load_adapter(self, env: str | None = None) -> SourceAdapter:
        """Import the module; return the adapter."""
        made = getattr(import_module(self.module), self.adapter)
        return cast("SourceAdapter", made() if self.env is not None else made(env))
