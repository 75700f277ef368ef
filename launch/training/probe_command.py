"""The `gavel probe` that measures the judges of a command, in that command's own words."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import fields

from gavel.judges.certificate import PROBE_AGAIN
from gavel.launch.compose.verbs import VERBS
from gavel.launch.config.schema import ProbeConfig

_NOT_ITS_OWN = frozenset(("run", "dry_run", "concurrency"))
"""Keys that both verbs have, and that say nothing about which judge it is."""


def spell_out(text: str, words: Sequence[str], config_dirs: Sequence[str] = ()) -> str:
    """Return a message with the probe command in place of the words that stand for it; ``words`` are those after the
    verb.
    """
    return text.replace(PROBE_AGAIN, f"run `{probe_command(words, config_dirs)}`") if PROBE_AGAIN in text else text


def probe_command(words: Sequence[str], config_dirs: Sequence[str] = ()) -> str:
    """Return the command: the words that choose environment, judge, rubrics and services, without those that `probe`
    has no use for.
    """
    folders = [part for folder in config_dirs for part in ("--config-dir", folder)]
    return shlex.join(["gavel", "probe", *folders, *(word for word in words if _is_probe_word(word))])


def _is_probe_word(word: str) -> bool:
    key = word.partition("=")[0].lstrip("~+").partition("@")[0].partition(".")[0]
    known = {*VERBS["probe"].groups, *(field.name for field in fields(ProbeConfig))}
    return ("=" in word or word.startswith("~")) and key in known - _NOT_ITS_OWN
