"""JSON by its grammar alone (RFC 8259): numbers of any size, any escaped code unit, any depth."""

from __future__ import annotations

import regex

_SCALAR = r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*+"|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null'  # noqa: E501
_TOKEN = regex.compile(rf"[ \t\n\r]*+({_SCALAR}|[\[\]{{}},:])")
_TRAILING = regex.compile(r"[ \t\n\r]*+\Z")

_VALUE, _FIRST_VALUE, _KEY, _FIRST_KEY, _COLON, _AFTER = range(6)
_CLOSES = {"[": "]", "{": "}"}


def is_json(text: str) -> bool:
    """Tell whether a text is one JSON value; in linear time, at any depth."""
    open_marks: list[str] = []
    expected, position = _VALUE, 0
    while open_marks or expected != _AFTER:
        token = _TOKEN.match(text, position)
        if token is None:
            return False
        position = token.end()
        following = _find_next(expected, token[1], open_marks)
        if following is None:
            return False
        expected = following
    return _TRAILING.match(text, position) is not None


def _find_next(expected: int, token: str, open_marks: list[str]) -> int | None:
    """Return what may follow a token; None where it must not stand. Opens and closes marks."""
    if token in ("]", "}"):
        fits = (
            open_marks
            and _CLOSES[open_marks[-1]] == token
            and expected in (_AFTER, _FIRST_VALUE if token == "]" else _FIRST_KEY)
        )
        if fits:
            open_marks.pop()
        return _AFTER if fits else None
    if expected == _AFTER:
        return (_KEY if open_marks[-1] == "{" else _VALUE) if token == "," else None
    if expected == _COLON:
        return _VALUE if token == ":" else None
    if token in (",", ":"):
        return None
    if expected in (_KEY, _FIRST_KEY):
        return _COLON if token[0] == '"' else None
    if token in _CLOSES:
        open_marks.append(token)
        return _FIRST_VALUE if token == "[" else _FIRST_KEY
    return _AFTER
