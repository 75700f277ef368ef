"""The languages as data: what differs between them stands here and nowhere else.

Everything the checks need beyond Unicode itself: which letters are vowels, which marks count, how a word may go on
after a keyword, and where the sentence library needs help. Marks common to all languages are named once, because
replies mix scripts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Literal

from gavel.envs.instruction_following.abbreviations import (
    BEFORE_NAMES,
    BEFORE_SMALL,
    INITIAL_BEFORE,
    NEVER,
    STARTS,
    TELLS,
)

Stop = Literal["", "small", "names", "never"]
"""Where a word's full stop ends no sentence: nowhere, before small letters and digits, before names too, anywhere."""

ALIASES: Mapping[str, str] = MappingProxyType({"fr": "fre", "pt": "pt-BR", "zh-CN": "zh"})

QUOTES: tuple[tuple[str, str], ...] = (
    ('"', '"'), ("“", "”"), ("„", "“"), ("„", "”"), ("«", "»"), ("»", "«"), ("‹", "›"), ("›", "‹"),
    ("「", "」"), ("『", "』"), ("《", "》"), ("〈", "〉"), ("＂", "＂"), ("〝", "〟"), ("”", "“"),
)  # fmt: skip
"""Pairs that can quote a whole reply; the German one closes with what opens elsewhere, and Arabic is set with both
turned.
"""

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

COMMAS = ",，、،､﹐﹑︐︑⸲⸴⹁"
PERIODS = ".。．｡۔।॥﹒․"
QUESTION_EXCLAIM = "?!？！؟‼⁉⁈⁇﹖﹗"
TIGHT_BULLETS = "•◦▪▫‣⁃・･ㆍ·∙⦁●○◎■□◆◇►➤"
BULLETS = f"-*+－＊＋–—★☆❖✦▶▷▸▹➢➣✓✔✗✘☐☑☒{TIGHT_BULLETS}"
"""Characters that open an item of a bulleted list; the tight ones need no blank behind them."""


@dataclass(frozen=True, eq=False)
class Language:
    """One language.

    ``code`` is the code used in tasks, ``icu`` and ``sentencex`` those of the libraries (in Italian the latter takes
    forty times as long as in Spanish, and knows no more). ``cased``: letters have upper and lower case. ``spaced``:
    blanks separate words (else a dictionary does). ``joined``: nothing but blanks does, so that particles stay with a
    quoted word. ``vowels``: base letters that are vowels, whatever their accent. ``folds``: letters whose accented
    forms count as the letter itself where letters are counted. ``marks``: what counts as a question or exclamation mark
    besides the common ones. ``elides``: an apostrophe separates words (l'ami). ``speech_dash``: an en dash opens
    speech. ``endings``: a pattern of how a word may go on after a keyword, ``vowel_endings`` of how it also may after
    one of two syllables or more that ends in a vowel. ``conjunctions``: words that are written in one with the next.
    ``speech``: a pattern of what follows a quoted sentence, with no blank between, that goes on. Where the sentence
    library errs: ``ordinals`` says that a number of one or two digits with a full stop can be an ordinal, ``dates``
    that numbers with full stops make a date, ``names`` that two initials joined by a hyphen begin a name, and
    ``compounds`` are abbreviations that words end in. ``numerals``: letters that write numbers. ``braces``:
    placeholders may stand in braces.
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
    speech_dash: bool = False
    endings: str = ""
    vowel_endings: str = ""
    conjunctions: str = ""
    speech: str = ""
    ordinals: bool = False
    dates: bool = False
    names: bool = False
    compounds: tuple[str, ...] = ()
    numerals: str = ""
    braces: bool = False

    def _collect_words(self, lists: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """Return what a language lists; where letters have no case, what English lists too, for the Latin words in a
        text.
        """
        own = lists.get(self.code, frozenset())
        return own if self.cased else own | lists["en"]

    @cached_property
    def abbreviations(self) -> Mapping[str, Stop]:
        """For each abbreviation where its full stop ends no sentence."""
        never, names, small = (self._collect_words(lists) for lists in (NEVER, BEFORE_NAMES, BEFORE_SMALL))
        stops: tuple[tuple[frozenset[str], Stop], ...] = ((small, "small"), (names, "names"), (never, "never"))
        return MappingProxyType({word: stop for listed, stop in stops for word in listed})

    @cached_property
    def last_parts(self) -> frozenset[str]:
        """What the abbreviations end in, in small letters: a word that is none of these is no abbreviation."""
        return frozenset(word.lstrip("=#+").rpartition(".")[2].lower() for word in self.abbreviations)

    @cached_property
    def starts(self) -> frozenset[str]:
        """Capitalised words that begin sentences."""
        return self._collect_words(STARTS)

    @cached_property
    def initial_before(self) -> frozenset[str]:
        """Words after which a single capital with a full stop is an initial."""
        return self._collect_words(INITIAL_BEFORE)

    @property
    def tells(self) -> str | None:
        """A pattern of what follows a quotation that goes on."""
        return TELLS.get(self.code)


_KOREAN_ENDINGS = (
    r"(?:[이가을를은는에의와과도로으만들께랑]|한테|까지|부터|처럼|보다|마다|마저|조차|밖에|라도|라고|라는|라면|라서|같이|대로|하고|나마|나(?![무라물])"
    r"|뿐|끼리|님|씨|쯤|째|씩|커녕|더러|답|다운|다워|롭|로운|로워|적|스럽|스러|스레|드리|드려|드린|드릴|드림|드립|시키|시켜|시킨|시킬|시킵|받"
    r"|[여예였입인일며면니네요야]|고(?:요|서|는|도)?(?!\w)|고[싶있]|어[요서야라]|지(?!도)|다(?!리)|기(?!름)|[게거던습아었았했해할함합한하되된될됩돼됐서시신세겠]"
    r"|[오옵왔와온올줍주줘줄준봅봤본볼있없])"
)
"""Particles, endings of verbs and adjectives, honorifics, and suffixes that leave the word what it was; 나무 is none of
them.
"""
_KOREAN_VOWEL_ENDINGS = (
    r"(?:란(?:다|다고|걸|게|건)?(?!\w)|[든던](?:지|가)?(?!\w)|죠|군요?(?!\w)|구[나만먼]|라니|라던|라든|라며|라지|라네|라(?!\w)|랍니|래요?(?!\w)|랄|람(?!\w)"
    r"|잖|였|며(?!칠)|냐|건(?!\w)|엔(?!\w)|치고(?!\w))"
)
"""Forms of the copula, whose 이 falls away after a vowel. After one syllable they are part of other words: 파란, 모든."""  # noqa: E501

_ALL = (
    Language("en", "English", "en", "en"),
    Language("es", "Spanish", "es", "es", speech_dash=True, folds="aeiou", marks="¿¡"),
    Language("fre", "French", "fr", "fr", elides=True, speech_dash=True, names=True),
    Language("de", "German", "de", "de", ordinals=True, compounds=("str",)),
    Language("it", "Italian", "it", "es", folds="aeiou", elides=True, speech_dash=True),
    Language("pt-BR", "Brazilian Portuguese", "pt", "pt", folds="aeiouc", elides=True, speech_dash=True),
    Language(
        "ja", "Japanese", "ja", "ja", cased=False, spaced=False,
        speech=r"と|って|など|を|[がのにはもでへ](?=[\p{Han}\p{Katakana}、])", numerals="〇零一二三四五六七八九十百千万億兆",  # noqa: E501
    ),
    Language("zh", "Chinese", "zh", "zh", cased=False, spaced=False, braces=True),
    Language(
        "ko", "Korean", "ko", "ko", cased=False, joined=True, dates=True, endings=_KOREAN_ENDINGS, vowel_endings=_KOREAN_VOWEL_ENDINGS,  # noqa: E501
        speech=r"라고|이라고|라[는며]|하고|며|고|(?:[을를은는이가의에와과도만로란]|에서|으로)(?=\s)",
    ),
    Language("hi", "Hindi", "hi", "hi", cased=False),
    Language("ar", "Arabic", "ar", "ar", cased=False, conjunctions="وف"),
)  # fmt: skip

LANGUAGES: Mapping[str, Language] = MappingProxyType({language.code: language for language in _ALL})
