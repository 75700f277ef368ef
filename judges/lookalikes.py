"""Characters that a reader takes for an ASCII one: full-width and mathematical letters, those of other scripts, marks.

Places in a folded text are those of the text: one character stands for one. Sources: Unicode's compatibility
decompositions, and from its list of confusable characters those of the scripts that hold many.
"""

from __future__ import annotations

import functools
import unicodedata

_COMPATIBLE = (
    *range(0x02B0, 0x02E4),
    *range(0x1D2C, 0x1D6B),
    *range(0x2070, 0x209D),
    *range(0x2100, 0x2150),
    *range(0x2460, 0x2500),
    *range(0xFE50, 0xFE70),
    *range(0xFF01, 0xFF5F),
    *range(0x1D400, 0x1D800),
    *range(0x1F130, 0x1F150),
)
"""Blocks whose characters may be an ASCII one in another form."""
_ALIKE = (
    "аa аa сc ԁd еe һh іi јj кk мm нh оo рp ѕs тt уy хx ԛq ԝw ӏl вb гr пn ѵv үy АA ВB ЕE КK МM НH ОO "
    "РP СC ТT УY ХX ІI ЈJ ЅS ԌG ԚQ ԜW ҮY ԀD αa βb εe ηn ιi κk νv οo ρp σo τt υu χx ωw γy ϲc ϳj ΑA ΒB "
    "ΕE ΖZ ΗH ΙI ΚK ΜM ΝN ΟO ΡP ΤT ΥY ΧX ϹC ոn սu օo հh ցg յj քp ꓐB ꓑP ꓒd ꓓD ꓔT ꓖG ꓗK ꓙJ ꓚC ꓜZ ꓝF ꓠN "
    "ꓡL ꓢS ꓣR ꓪW ꓫX ꓬY ꓮA ꓰE ꓲI ꓳO ꓴU ꓦV ꓧH ꓟM ᎪA ᏴB ᏟC ᎠD ᎬE ᏀG ᎻH ᎫJ ᏦK ᏞL ᎷM ᏢP ᏚS ᎢT ᏙV ᏔW ᏃZ ıi "
    "ɑa ɡg ɩi ʟL ɴN ᴀA ʙB ᴄC ᴅD ᴇE ꜰF ɢG ʜH ɪI ᴊJ ᴋK ᴍM ᴏO ᴘP ʀR ꜱS ᴛT ᴜU ᴠV ᴡW ʏY ᴢZ ǀ| ∣| │| ❘| ⁄/ "
    "∕/ ╱/ ＿_ "
)


@functools.cache
def _make_table() -> dict[int, str]:
    folded = ((code, unicodedata.normalize("NFKC", chr(code))) for code in _COMPATIBLE)
    table = {code: letter for code, letter in folded if len(letter) == 1 and letter.isascii()}
    return table | {ord(pair[0]): pair[1] for pair in _ALIKE.split()}


def fold_lookalikes(text: str) -> str:
    """Return a text of the same length in which each character that looks like an ASCII one is that one."""
    return text if text.isascii() else text.translate(_make_table())
