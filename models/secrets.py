"""What looks like a credential: so that one is neither accepted where a name is wanted, nor shown, nor stored."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

_PREFIXED = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:sk|rk|pk|hf|gsk|xai|nvapi|pplx|r8|ghp|gho|ghs|glpat|tgp|fw|csk|dapi|api)[-_](?=[A-Za-z_\-]*\d)[A-Za-z0-9_\-]{12,}"
    r"|(?:hf|r8|gsk|ghp)_[A-Za-z]{20,}|github_pat_\w{16,}|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[A-Za-z0-9_\-]{20,}|xox[abp]-[\w-]{10,}"
    r"|eyJ[\w-]{10,}\.[\w-]{10,}\.?[\w-]*)"
)
"""The forms of keys that providers document by their beginnings."""

_CREDENTIAL_NAME = re.compile(
    r"auth(?:orization)?(?![a-z])|api[-_]?key|passw|passphrase|pwd|secret|credential|cookie|private[-_]?key|bearer"
    r"|^token$|(?:^|[-_])(?:(?<!cache[-_])key|sig|signature)$|(?:access|api|auth|gateway|hf|id|refresh|session|security|user)[-_]?token",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"token(?!iz)", re.IGNORECASE)

_LONG = 16
"""Characters in a row, without ``_``, from which on a word that mixes letters and digits is taken for a key."""


def is_credential_name(name: str) -> bool:
    """Tell whether a field of this name holds a credential: ``api_key``, ``X-My-Password``, ``hf_token``; not
    ``max_tokens``.
    """
    return _CREDENTIAL_NAME.search(name) is not None


def is_credential_header(name: str) -> bool:
    """Tell whether a header holds a credential; no header counts tokens, so the word alone tells."""
    return is_credential_name(name) or _TOKEN.search(name) is not None or "auth" in name.lower()


def is_likely_key(text: str) -> bool:
    """Tell whether a text, given where a variable's name is wanted, may be the key itself.

    A documented beginning (``sk-``, ``hf_``, ``AKIA``), or a part without ``_`` that no person would name a variable:
    16 characters or more with three digits among letters, or 20 or more whose case changes at every other character.
    """
    return _PREFIXED.search(text) is not None or any(_is_random(part) for part in text.split("_"))


def _is_random(part: str) -> bool:
    if len(part) < _LONG:
        return False
    digits, letters = sum(map(str.isdigit, part)), sum(map(str.isalpha, part))
    if digits >= 3 and letters >= 1:
        return True
    changes = sum(_classify_character(first) != _classify_character(second) for first, second in pairwise(part))
    return len(part) >= 20 and 2 * changes > len(part)


def _classify_character(character: str) -> str:
    return "0" if character.isdigit() else "a" if character.islower() else "A"


def mask_keys(text: str) -> str:
    """Return ``text`` with every key of a documented form replaced."""
    return _PREFIXED.sub("[secret]", text)


def find_suspect_field(fields: object, path: str = "") -> str | None:
    """Return the dotted path of the first field that holds a credential, by its name or by a documented form; None if
    none does.
    """
    return next(_iter_suspects(fields, path), None)


def _iter_suspects(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            below = f"{path}.{name}" if path else str(name)
            # Numbers and switches are no credentials, whatever they are called; an empty text holds none.
            if isinstance(part, str) and part and is_credential_name(str(name)):
                yield below
            yield from _iter_suspects(part, below)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _iter_suspects(part, path)
    elif isinstance(value, str) and _PREFIXED.search(value):
        yield path
