"""Values that are stored are literal: what a run folder holds is never interpolated, and no word of a command asks the
environment.

A resolver such as ``${oc.env:KEY}`` would write what it finds in the clear into ``config.yaml``; a reference to another
key of the same config (``${policy.model}``) is no resolver and stays. Config files, the package's and a user's, may
still take an address or a model's name from the environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gavel.models.errors import ConfigError, shorten_value

_OPENING = re.compile(r"(\\*)\$\{")
_RESOLVER = re.compile(r"(?<!\\)(?:\\\\)*\$\{(?:[^{}]|\$\{[^{}]*\})*?:")


def escape_interpolation(value: Any) -> Any:
    """Return a value, or a tree of them, with every ``${`` written so that OmegaConf reads it as text."""
    if isinstance(value, str):
        return _OPENING.sub(r"\1\1\\${", value)
    if isinstance(value, Mapping):
        return {name: escape_interpolation(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [escape_interpolation(item) for item in value]
    return value


def refuse_resolvers(value: Any, field: str) -> None:
    """Refuse a value, or a tree of them, that asks for something outside the config.

    Raises:
        ConfigError: names the key; what the resolver would give is not looked up.
    """
    if isinstance(value, Mapping):
        for name, item in value.items():
            refuse_resolvers(item, f"{field}.{name}")
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            refuse_resolvers(item, f"{field}[{place}]")
    elif isinstance(value, str) and _RESOLVER.search(value):
        section = field.rpartition(".")[0] or field
        raise ConfigError(
            "this value would be stored in the clear, and asks for something outside the config",
            field=field,
            found=shorten_value(value),
            allowed="a plain value, or ${KEY} of this config",
            remedy=f"for a secret name its variable: {section}.api_key_env=VARIABLE; anything else: let the shell "
            f"put it in; "
            "for the text itself write \\${",
        )
