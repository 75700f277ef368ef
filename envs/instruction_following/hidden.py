"""Characters that do not show: which of them belong to a text, and which are taken out before anything is counted or
compared.

By Unicode's properties, not by a list: ``Default_Ignorable_Code_Point``, ``Cf`` and the controls. What stays:

- marks of format that do show: the Arabic, Syriac and Kaithi number signs (``Prepended_Concatenation_Mark``);
- a joiner (U+200D) or non-joiner (U+200C) between two letters of a script that needs it (Persian, the scripts of India
…), and a joiner between two pictographs (a family, a flag);
- a selector behind a pictograph or a keycap's digit, and the tags of a flag.

The braille blank, which is not ignorable, shows as a blank and becomes one.
"""

from __future__ import annotations

import regex

_SCRIPTS = (
    "Arabic", "Syriac", "Mandaic", "Nko", "Mongolian", "Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu",  # noqa: E501
    "Kannada", "Malayalam", "Sinhala", "Khmer", "Myanmar", "Tibetan", "Inherited",
)  # fmt: skip
"""Scripts in which joiners tell words apart, and the marks that any script shares."""
_JOINING = r"[[\p{L}\p{M}]&&[" + "".join(rf"\p{{{script}}}" for script in _SCRIPTS) + "]]"
_PICTURE = r"[\p{Extended_Pictographic}\p{Emoji_Modifier}\uFE0F\U000E007F]"
_HIDDEN = regex.compile(
    r"[[\p{Default_Ignorable_Code_Point}\p{Cf}\p{Cc}]--[\p{Prepended_Concatenation_Mark}\t\n\r]]", regex.VERSION1
)
_BELONGS = regex.compile(
    rf"(?<={_JOINING})[\u200C\u200D](?={_JOINING})"
    rf"|(?<={_PICTURE})\u200D(?=\p{{Extended_Pictographic}})"
    r"|(?<=\p{Extended_Pictographic})[\uFE0E\uFE0F]|(?<=[0-9#*])\uFE0F(?=\u20E3)"
    r"|(?<=\U0001F3F4)[\U000E0020-\U000E007E]{1,8}\U000E007F",
    regex.VERSION1,
)
_CONTROLS = bytes(sorted({*range(32), 127} - set(b"\t\n\r")))
"""What is hidden of ASCII."""
_BLANK_GLYPH = "\u2800"


def strip_hidden(text: str) -> str:
    """Return a text without the characters that do not show and do not belong; see this module."""
    if text.isascii():
        written = text.encode()
        shown = written.translate(None, _CONTROLS)
        return text if len(shown) == len(written) else shown.decode()
    text = text.replace(_BLANK_GLYPH, " ")
    return _HIDDEN.sub(_keep_what_belongs, text) if _HIDDEN.search(text) else text


def strip_all_hidden(text: str) -> str:
    """Return a text without any of these characters, as texts are compared: joiners and selectors make no difference
    there.
    """
    return text if text.isascii() and text.isprintable() else _HIDDEN.sub("", text)


def _keep_what_belongs(found: regex.Match[str]) -> str:
    text, start = found.string, found.start()
    if "\U000e0020" <= found[0] <= "\U000e007f":  # the tags of a flag are one run
        first = start
        while first and "\U000e0020" <= text[first - 1] <= "\U000e007f" and start - first < 9:
            first -= 1
        run = _BELONGS.match(text, first)
        return found[0] if run is not None and run.end() > start else ""
    return found[0] if _BELONGS.match(text, start) else ""
