"""The eleven languages as data: what differs between them stands here and nowhere else.

Everything the checks need beyond Unicode itself: which letters are vowels, which marks count, how a word may go on after a keyword,
and where the sentence library needs help. Marks common to all languages are named once, because replies mix scripts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

ALIASES: Mapping[str, str] = MappingProxyType({"fr": "fre", "pt": "pt-BR", "zh-CN": "zh"})

QUOTES: tuple[tuple[str, str], ...] = (
    ('"', '"'), ("“", "”"), ("„", "“"), ("„", "”"), ("«", "»"), ("»", "«"), ("‹", "›"), ("›", "‹"),
    ("「", "」"), ("『", "』"), ("《", "》"), ("〈", "〉"), ("＂", "＂"), ("〝", "〟"),
)  # fmt: skip
"""Pairs that can quote a whole reply; the German one closes with what opens elsewhere."""

BRACKETS: tuple[tuple[str, str], ...] = (
    ("(", ")"),
    ("[", "]"),
    ("{", "}"),
    ("（", "）"),
    ("［", "］"),
    ("｛", "｝"),
    ("【", "】"),
    ("〔", "〕"),
)

END_MARKS = ".!?…。．！？｡‼⁉⁈⁇।॥؟۔"
"""Characters that can end a sentence, in any of the languages."""

COMMAS = ",，、､،﹐﹑"
PERIODS = ".。．｡۔।॥"
QUESTION_EXCLAIM = "?!？！؟‼⁉⁈⁇﹖﹗"
BULLETS = "-*+•◦▪▫‣⁃–—・·●○■□►➤"
"""Characters that open an item of a bulleted list."""
TIGHT_BULLETS = "•◦▪▫‣⁃・●○■□►➤"
"""Those that need no blank behind them."""


@dataclass(frozen=True, slots=True)
class Language:
    """One language.

    ``code`` is the code used in tasks, ``icu`` and ``sentencex`` those of the libraries. ``cased``: letters have upper and lower case.
    ``spaced``: blanks separate words (else a dictionary does). ``joined``: nothing but blanks does, so that particles stay with a
    quoted word. ``vowels``: base letters that are vowels, whatever their accent.
    ``folds``: letters whose accented forms count as the letter itself where letters are counted. ``marks``: what counts as a question
    or exclamation mark besides the common ones. ``elides``: an apostrophe separates words (l'ami). ``endings``: syllables with which
    a word may go on after a keyword. ``conjunctions``: words that are written in one with the next. ``speech``: what follows a quoted
    sentence that goes on. Where the sentence library errs: ``titles`` never end a sentence, ``abbreviations`` do not before a small
    letter or a digit, ``ordinals`` says that a number of one or two digits with a full stop does not, and ``words`` do end one before
    a capital letter. ``numerals``: letters that write numbers. ``braces``: placeholders may stand in braces.
    """

    code: str
    name: str
    icu: str
    sentencex: str
    cased: bool = True
    spaced: bool = True
    joined: bool = False
    vowels: str = "aeiouæœ"
    folds: str = ""
    marks: str = ""
    elides: bool = False
    endings: str = ""
    conjunctions: str = ""
    speech: tuple[str, ...] = ()
    titles: frozenset[str] = frozenset()
    abbreviations: frozenset[str] = frozenset()
    ordinals: bool = False
    words: frozenset[str] = frozenset()
    numerals: str = ""
    braces: bool = False


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_KOREAN_ENDINGS = (
    "이가을를은는에의와과도로으만까부보처같마나랑하들께한조밖든라야여예였입인일라며면고다니네요지기게거던습어아었았했해할함합된되될됩돼서시신세"
    "오옵왔와온올줍주줘줄준봅봤본볼있없"
)

_ALL = (
    Language(
        "en", "English", "en", "en",
        titles=_set("Ms"), abbreviations=_set("approx vol Vol est max min"), words=_set("etc no"),
    ),
    Language(
        "es", "Spanish", "es", "es", folds="aeiou", marks="¿¡",
        titles=_set("D Dña"), abbreviations=_set("aprox ed d.C a.m p.m"), words=_set("etc no"),
    ),
    Language(
        "fre", "French", "fr", "fr", elides=True,
        titles=_set("M MM Mme Mmes Mlle Mlles Dr Pr Me St Ste"), abbreviations=_set("ex bd No min max c.-à-d av apr"),
        words=_set("etc"),
    ),
    Language(
        "de", "German", "de", "de", ordinals=True,
        titles=_set("Hrn Dipl"), abbreviations=_set("Abb Abs Bd inkl exkl max geb gest Tel"), words=_set("etc usw"),
    ),
    Language(
        "it", "Italian", "it", "it", folds="aeiou", elides=True,
        titles=_set("P.zza"), abbreviations=_set("pag pagg n a.C d.C S.p.A"), words=_set("ecc"),
    ),
    Language(
        "pt-BR", "Brazilian Portuguese", "pt", "pt", folds="aeiouc",
        titles=_set("Srta Profa Exma Ilmo Av R"),
        abbreviations=_set("Ltda ex pág págs vol ed cap núm tel séc a.C d.C Cia aprox n etc"), words=_set("etc"),
    ),
    Language(
        "ja", "Japanese", "ja", "ja", cased=False, spaced=False,
        speech=("と", "って", "など"), numerals="〇零一二三四五六七八九十百千万億兆",
    ),
    Language(
        "zh", "Chinese", "zh", "zh", cased=False, spaced=False,
        speech=("他说", "她说", "他问", "她问", "我说", "他道", "她道"), braces=True,
    ),
    Language(
        "ko", "Korean", "ko", "ko", cased=False, joined=True, endings=_KOREAN_ENDINGS,
        speech=("라고", "이라고", "라는", "하고", "며", "고", "라며"),
    ),
    Language("hi", "Hindi", "hi", "hi", cased=False, titles=_set("डॉ श्री श्रीमती प्रो कु सु पं मि रु")),
    Language("ar", "Arabic", "ar", "ar", cased=False, conjunctions="وف", titles=_set("د أ م"), abbreviations=_set("ص ج هـ")),
)  # fmt: skip

LANGUAGES: Mapping[str, Language] = MappingProxyType({language.code: language for language in _ALL})
