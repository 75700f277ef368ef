"""Whether the name that a server gives itself can be the model that was asked for: pure.

A name is read as a maker, a stem and a stamp. Not part of any: the case, a cloud's vendor (``anthropic.…``,
``…-v1:0``), a router's variant (``:free``). The maker stands right before the last ``/``; a path and a router's name
for a provider are none. The stamp is a date or a numbered release at the end; ``latest`` is none. Four digits are a
stamp only where the name without them stands for the newest (``gpt-4-0613``): elsewhere they name other weights
(``qwen3-235b-a22b-2507``, ``deepseek-r1-0528``). ``.`` reads as ``-``. Of Claude both orders occur
(``claude-4.5-opus``, ``claude-opus-4-5``), and a minor ``-0`` says nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_VARIANT = re.compile(r":(?:free|nitro|floor|online|extended|beta|exacto|latest)$")
_CLOUD = re.compile(
    r"^(?:(?:us|eu|apac|jp|global)\.)?(?:anthropic|meta|amazon|mistral|cohere|deepseek|qwen|openai)\.(?=[a-z])"
)
_CLOUD_RELEASE = re.compile(r"(?<=\d)-v\d{1,2}(?::\d{1,2})?$")
_STAMP = re.compile(
    r"[-@](20\d{6}|20\d\d-\d\d-\d\d|(?<=preview-)\d\d-\d\d(?:\d\d)?|(?<=exp-)\d\d-\d\d(?:\d\d)?"
    r"|2[3-9](?:0[1-9]|1[0-2])|(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])|00\d)$"
)
_STAMPED_IN_SHORT = re.compile(r"(?:chat)?gpt-|o\d|\w*stral-|grok-|qwen-|glm-|gemini-")
"""Whose four digits are a date of what the name alone stands for."""
_NO_MAKER = frozenset(
    ("", "models", "azure", "bedrock", "vertex_ai", "hosted_vllm", "litellm", "openrouter", "together_ai")
)


@dataclass(frozen=True, slots=True)
class ModelName:
    """A name as it is compared; ``stamp`` is empty for an undated one, ``maker`` for one that does not say whose it
    is.
    """

    stem: tuple[str, ...]
    stamp: str
    maker: str = ""


def read_name(name: str) -> ModelName:
    """Read a model's name."""
    before, _, last = name.rstrip("/").lower().rpartition("/")
    maker = "" if before.startswith(("/", ".")) or before.rpartition("/")[2] in _NO_MAKER else before.rpartition("/")[2]
    base = _VARIANT.sub("", last)
    if _CLOUD.match(base):
        base = _CLOUD_RELEASE.sub("", _CLOUD.sub("", base))
    base = base.replace(".", "-").removesuffix("-latest")
    found = _STAMP.search(base)
    stamp = found[1].replace("-", "") if found else ""
    if found is None or (len(stamp) == 4 and not _STAMPED_IN_SHORT.match(base)):
        return ModelName(_order_parts(base), "", maker)
    return ModelName(_order_parts(base[: found.start()]), stamp, maker)


def _order_parts(stem: str) -> tuple[str, ...]:
    if not stem.startswith("claude-"):
        return (stem,)
    parts = stem.split("-")
    version = [part for part in parts if part.isdecimal()]
    while version[1:] and version[-1] == "0":
        version.pop()
    return (*sorted(part for part in parts if not part.isdecimal()), *version)


def is_same_model(requested: str, served: str) -> bool:
    """Tell whether two names may be those of one model: equal stems, and equal stamps and makers where both have one.

    ``gpt-4o`` and ``gpt-4o-2024-08-06`` may be; ``gpt-4o-mini`` and ``gpt-4o``, or ``gpt-5.2`` and ``gpt-5``, or
    ``a/gpt-4o`` and ``b/gpt-4o``, are two.
    """
    if requested == served:
        return True
    one, other = read_name(requested), read_name(served)
    pairs = ((one.stamp, other.stamp), (one.maker, other.maker))
    return one.stem == other.stem and all(mine == theirs or not mine or not theirs for mine, theirs in pairs)
