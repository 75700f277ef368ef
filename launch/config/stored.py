"""A config as YAML: written into a run's folder, and read back."""

from __future__ import annotations

from typing import TypeVar

import yaml

from gavel.launch.config.errors import explain_error
from gavel.models.codec import decode, to_plain
from gavel.models.errors import ConfigError

T = TypeVar("T")


def to_yaml(config: object) -> str:
    """Return a config as YAML, every key written out; secrets are not in it, for a config holds only names of
    variables.
    """
    return str(yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True, width=120))


def from_yaml(cls: type[T], text: str, *, where: str = "") -> T:
    """Read what ``to_yaml`` wrote.

    Raises:
        ConfigError: it is not YAML, or does not fit the class.
    """
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as failed:
        raise explain_error(failed, where) from None
    return decode(cls, value, where=where, error=ConfigError)
