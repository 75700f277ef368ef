"""What a child run is called: its parent's name, the verb, and what was changed, in letters any file system takes.

There is no ``=`` in a name: on the command line a word with one is a key and its value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gavel.envs.registry import REWARDS, choose_entry
from gavel.models.codec import compute_digest, to_plain

LONGEST = 48
"""Characters of what was changed; a longer text is cut and gets its digest, so that equal texts alone have equal
names.
"""
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")


def make_child_name(parent: str, verb: str, changed: str) -> str:
    """Return the folder's name: ``demo-rescore-abstain-0.3``."""
    text = _UNSAFE.sub("_", changed.replace("=", "-")).strip("_.") or "same"
    if len(text) > LONGEST:
        text = f"{text[: LONGEST - 9].rstrip('_.')}-{compute_digest(changed)[7:15]}"
    return f"{parent}-{verb}-{text}"


def reward_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return how a reward differs from its parent's: the options that were changed, and its name where it is another
    one; of another one only the options that are not its defaults."""
    name, known = str(new.get("name", "")), dict(old)
    if old.get("name") != name:
        cls, _ = choose_entry("reward", name, REWARDS).load_parts()
        known = {field: getattr(cls(), field) for field in getattr(cls, "__dataclass_fields__", {})}
    known, given = to_plain(known), to_plain(dict(new))
    changed = [f"{key}={value}" for key, value in given.items() if key != "name" and known.get(key) != value]
    return ",".join(changed if changed and old.get("name") == name else [name, *changed])


def describe_grading_changes(old: Mapping[str, tuple[str, str]], new: Mapping[str, tuple[str, str]]) -> str:
    """Return how the grading differs from the parent's, both as (model, profile) by binding; the models where nothing
    does.
    """
    parts = [
        part
        for name, (model, profile) in new.items()
        for part, before in ((model, old.get(name, ("", ""))[0]), (profile, old.get(name, ("", ""))[1]))
        if part != before
    ]
    return ",".join(dict.fromkeys(parts or [model for model, _ in new.values()]))
