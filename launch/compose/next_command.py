"""The command that an error tells to run next, in the words of the command that failed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields

from gavel.launch.compose.verbs import SWEPT, VERBS
from gavel.launch.config.schema import ProbeConfig
from gavel.models.errors import Findings, GavelError, InputError, NextCommand

_NOT_ITS_OWN = frozenset(("run", "dry_run", "concurrency"))
"""Keys that both verbs have, and that say nothing about which judge it is."""


@dataclass(frozen=True, slots=True)
class FailedCommand:
    """A command that failed: ``words`` are its overrides, ``runs`` the words after the verb that stand alone."""

    verb: str
    words: Sequence[str]
    config_dirs: Sequence[str] = ()
    runs: Sequence[str] = ()

    @property
    def _folders(self) -> list[str]:
        return [part for folder in self.config_dirs for part in ("--config-dir", folder)]

    def spell_remedies(self, failed: GavelError) -> GavelError:
        """Put the very commands into an error and what it holds; return it."""
        if isinstance(failed, Findings):
            for one in failed.findings:
                self.spell_remedies(one)
        if isinstance(failed, InputError) and isinstance(remedy := failed.remedy, NextCommand):
            spelled = f"run `{self.make_probe_command()}`" if remedy.command == "probe" else self._make_sweep_advice()
            failed.remedy = f"{spelled}{remedy.more}"
        return failed

    def make_probe_command(self) -> str:
        """Return the `gavel probe` that measures the judges of the command: the words that choose environment, judge,
        rubrics and services, without those that `probe` has no use for.
        """
        return shlex.join(["gavel", "probe", *self._folders, *(word for word in self.words if _is_probe_word(word))])

    def _make_sweep_advice(self) -> str:
        if self.verb in SWEPT:
            words = ("gavel", self.verb, *self._folders, *self.runs, "-m", *self.words)
            return f"for a run of each: {shlex.join(words)}"
        return f"`gavel {self.verb}` has no sweeps ({' and '.join(SWEPT)} have): run the command once for each"


def _is_probe_word(word: str) -> bool:
    key = word.partition("=")[0].lstrip("~+").partition("@")[0].partition(".")[0]
    known = {*VERBS["probe"].groups, *(field.name for field in fields(ProbeConfig))}
    return ("=" in word or word.startswith("~")) and key in known - _NOT_ITS_OWN
