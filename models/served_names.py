"""Whether the name that a server gives itself can be the model that was asked for: pure.

A name is read as a stem and a stamp. Not part of either: the case, what stands before the last ``/``, a cloud's vendor
(``anthropic.…``, ``…-v1:0``), a router's variant (``:free``). The stamp is a date or a numbered release at the end; ``latest`` is none.
``.`` reads as ``-``. Of Claude both orders occur (``claude-4.5-opus``, ``claude-opus-4-5``), and a minor ``-0`` says nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_VARIANT = re.compile(r":(?:free|nitro|floor|online|extended|beta|exacto|latest)$")
_CLOUD = re.compile(r"^(?:(?:us|eu|apac|jp|global)\.)?(?:anthropic|meta|amazon|mistral|cohere|deepseek|qwen|openai)\.(?=[a-z])")
_CLOUD_RELEASE = re.compile(r"(?<=\d)-v\d{1,2}(?::\d{1,2})?$")
_STAMP = re.compile(
    r"[-@](20\d{6}|20\d\d-\d\d-\d\d|(?<=preview-)\d\d-\d\d(?:\d\d)?|(?<=exp-)\d\d-\d\d(?:\d\d)?"
    r"|2[3-9](?:0[1-9]|1[0-2])|(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])|00\d)$"
)


@dataclass(frozen=True, slots=True)
class ModelName:
    """A name as it is compared; ``stamp`` is empty for an undated one."""

    stem: tuple[str, ...]
    stamp: str


def read_name(name: str) -> ModelName:
    """Read a model's name."""
    base = _VARIANT.sub("", name.rstrip("/").rpartition("/")[2].lower())
    if _CLOUD.match(base):
        base = _CLOUD_RELEASE.sub("", _CLOUD.sub("", base))
    base = base.replace(".", "-").removesuffix("-latest")
    found = _STAMP.search(base)
    stem = base[: found.start()] if found else base
    return ModelName(_order_parts(stem), found[1].replace("-", "") if found else "")


def _order_parts(stem: str) -> tuple[str, ...]:
    if not stem.startswith("claude-"):
        return (stem,)
    parts = stem.split("-")
    version = [part for part in parts if part.isdecimal()]
    while version[1:] and version[-1] == "0":
        version.pop()
    return (*sorted(part for part in parts if not part.isdecimal()), *version)


def same_model(requested: str, served: str) -> bool:
    """Tell whether two names may be those of one model: equal stems, and equal stamps where both have one.

    ``gpt-4o`` and ``gpt-4o-2024-08-06`` may be; ``gpt-4o-mini`` and ``gpt-4o``, or ``gpt-5.2`` and ``gpt-5``, are two.
    """
    if requested == served:
        return True
    one, other = read_name(requested), read_name(served)
    return one.stem == other.stem and (one.stamp == other.stamp or not one.stamp or not other.stamp)
