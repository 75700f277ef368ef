"""Text under judgement is data: what a judge's template, tokenizer or eye could take for something else is made
harmless or flagged.

``Neutraliser.clean_text`` serves our own rubrics; ``find_hostile`` names the same content for ported ones, which send
exact bytes. Invisible characters stay where a script or an emoji needs them (Unicode Standard 23.2 and UTS 51: joiners
in Arabic and Indic words, emoji sequences, direction marks beside right-to-left text, variation selectors after a
visible character).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from gavel.judges.lookalikes import fold_lookalikes

Keep = Callable[[re.Match[str]], bool]


def _never_match(_: re.Match[str]) -> bool:
    return False


_EMOJI = (
    "©®\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u2460-\u27bf\u2900-\u297f\u2b00-\u2bff\u3030\u303d\u3297\u3299"
    "\U0001f000-\U0001faff"
)
_JOINED_SCRIPTS = (
    # Arabic, Syriac, Thaana, NKo and neighbours; the Indic blocks; Myanmar; Khmer; Mongolian; Arabic presentation
    # forms.
    "\u0600-\u061b\u061d-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18af\ufb50-\ufdff\ufe70-\ufefc"
)
_RIGHT_TO_LEFT = re.compile(
    "[\u0590-\u061b\u061d-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
_AFTER_SCRIPT = re.compile(f"[{_JOINED_SCRIPTS}]")
_BEFORE_JOINER = re.compile(f"[{_EMOJI}\ufe0f\U000e007f]")
_AFTER_JOINER = re.compile(f"[{_EMOJI}]")
_INVISIBLE = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065\u206a-\u206f"
    "\u3164\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a"
)
_TAGS = "\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"


def _get_before(match: re.Match[str]) -> str:
    return match.string[match.start() - 1 : match.start()]


def _keep_flag(match: re.Match[str]) -> bool:
    return len(match[0]) > 1  # the pattern's first branch: a whole subdivision flag


def _keep_mark(match: re.Match[str]) -> bool:
    return _get_before(match) not in ("\u061c", "\u200e", "\u200f")


def _keep_joiner(match: re.Match[str]) -> bool:
    before, after = _get_before(match), match.string[match.end() : match.end() + 1]
    if _AFTER_SCRIPT.match(before):
        return True
    return match[0] == "\u200d" and bool(_BEFORE_JOINER.match(before)) and bool(_AFTER_JOINER.match(after))


def _keep_selector(match: re.Match[str]) -> bool:
    before = _get_before(match)
    if before.isascii() or before in ("｜", "◁"):  # there it only splits a token, but for keycaps
        return before in tuple("0123456789#*") and match.string.startswith("\u20e3", match.end())
    return before.strip() != "" and not re.match(f"[{_SELECTORS}]", before)


_CHARACTERS: tuple[tuple[str, re.Pattern[str], Keep, str], ...] = (
    # flag, what it looks for, when it stays, what it becomes
    ("", re.compile("\r\n?"), _never_match, "\n"),
    ("control_character", re.compile("[\x85\u2028\u2029]"), _never_match, "\n"),
    ("control_character", re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]"), _never_match, "\ufffd"),
    ("invisible_character", re.compile(f"[{_INVISIBLE}]"), _never_match, ""),
    (
        "invisible_character",
        re.compile(f"(?<=\U0001f3f4)[\U000e0030-\U000e007a]{{3,6}}\U000e007f|[{_TAGS}]"),
        _keep_flag,
        "",
    ),
    ("bidi_control", re.compile("[\u202a-\u202e\u2066-\u2069]"), _never_match, ""),
    ("bidi_control", re.compile("[\u061c\u200e\u200f]"), _keep_mark, ""),
    ("invisible_character", re.compile("[\u200c\u200d]"), _keep_joiner, ""),
    ("invisible_character", re.compile(f"[{_SELECTORS}]"), _keep_selector, ""),
)
"""In this order, so that a later row sees its real neighbours.

A control becomes a visible mark: dropping it could join two words.
"""

_TOKEN_NAMES = (
    "s|bos|eos|pad|unk|mask|cls|sep|think|thinking|answer|tools|tool_call|tool_calls|tool_response|function_calls|"
    "start_of_turn|end_of_turn|start_of_image|end_of_image|image_soft_token|extra_id_[0-9]+|unused[0-9]+|"
    "special_[0-9]+|reserved(?:_[a-z]{1,20}){0,3}_?[0-9]+|(?:seed|mm|minimax|longcat|antml):[a-z_]{1,40}|longcat_[a-z_]{1,40}|"
    "fim[-_][a-z]+|repo_name|reponame|file_sep|filename|gh_stars|issue_start|issue_comment|issue_closed|jupyter_start|jupyter_text|"
    "jupyter_code|jupyter_output|jupyter_script|empty_output|commit_before|commit_msg|commit_after"
)
_BRACKET_NAMES = (
    "INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|CALL_ID|ARGS|MODEL_SETTINGS|THINK|IMG|IMG_BREAK|IMG_END|"
    "PREFIX|MIDDLE|SUFFIX|AUDIO|BEGIN_AUDIO|TRANSCRIBE|CLS|SEP|MASK|PAD|UNK|BOS|EOS|gMASK|sMASK|sop|eop"
)
_LEFT, _RIGHT = (
    "[<\uff1c\ufe64\u2329\u3008\u27e8\u02c2\u276e\u1438]",
    "[>\uff1e\ufe65\u232a\u3009\u27e9\u02c3\u276f\u1433]",
)
"""Angle brackets, and what looks like them to a reader."""
_TOKENS = "|".join((
    rf"{_LEFT}[|｜][^<>|｜\n]{{1,64}}[|｜]{_RIGHT}",  # ChatML, Llama, Phi, DeepSeek, GLM, harmony
    rf"{_LEFT}[|｜][\w ▁:./\"-]{{1,64}}{_RIGHT}|{_LEFT}/?[\w▁:./-]{{1,64}}[|｜]{_RIGHT}",  # Gemma 4: <|turn> … <turn|>
    rf"{_LEFT}/?[|｜] ?DSML ?[|｜][^<>\n]{{0,64}}{_RIGHT}",  # DeepSeek's calls
    rf"{_LEFT}{_LEFT}/?SYS{_RIGHT}{_RIGHT}",
    rf"{_LEFT}[/／]?(?:{_TOKEN_NAMES}){_RIGHT}",
    rf"\[/?(?:{_BRACKET_NAMES})\]",  # Mistral
    r"◁/?think▷",  # Kimi
    r"\[[|｜][^\[\]|｜\n]{1,64}[|｜]\]",  # EXAONE
    r"\]~!?[a-z][\[\]]|\[e~\[|\]![a-z]~\[|\]<\][a-z ]{1,20}\[>\[",  # MiniMax
))  # fmt: skip
"""Chat-template and other special tokens of the common model families; a judge whose tokenizer can be read adds its
own.
"""

_TOKEN = re.compile(_TOKENS, re.IGNORECASE)
_BRACKETS = str.maketrans(
    "<>[]\uff3b\uff3d\uff1c\uff1e\ufe64\ufe65\u2329\u232a\u3008\u3009\u27e8\u27e9\u02c2\u02c3\u276e\u276f\u1438\u1433",
    "‹›⟦⟧⟦⟧" + "‹›" * 8,
)
_ROUNDS = 8
"""Tokens may stand inside one another; no form above nests deeper than three times."""
_SUSPECT = (
    "\r<◁\uff3b\uff3d\uff1c\ufe64\u2329\u3008\u27e8\u02c2\u276e\u1438\\[\\]\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_PLAIN = re.compile(f"[^{_SUSPECT}]*")
"""A text without any character that a rule could touch; most answers are, and one scan tells."""

_NEAR_SEAM = 160
"""Characters on either side of a slot's end in which a mark is looked for that neither side has alone; no mark is
longer."""
_OPENED = re.compile(f"(?:{_LEFT}|[\\[\\]◁])[^<>\\[\\]▷]*\\Z")
_ACCENTS = "[\u0300-\u036f\u0483-\u0489\u20d0-\u20f0]{0,3}"
"""Marks over, under and through a letter, which a reader reads as the letter."""

_PHRASES: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = (
    # flag, words of which the text must hold one (lower case; a quick look before the slow one), what it looks for
    (
        "verdict_words",
        ("correct", "not_attempted", "grade", "verdict", "rating", "judg"),
        re.compile(
            r"NOT_ATTEMPTED|\bINCORRECT\b|\bCORRECT\b"
            r"|\b(?i:grade|verdict|rating|judge?ment)\s*(?i:[:=]|is)\s*\W{0,3}(?:[ABC]\b|(?i:in)?(?i:correct))"
        ),
    ),
    (
        "grader_instruction",
        ("ignore", "disregard", "forget", "override", "correct", "grader", "judge", "evaluator"),
        re.compile(
            r"\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:instruction|rubric|reference|above|previous|prior)"
            r"|\b(?:mark|grade|rate|score|judge|label|accept)\b.{0,40}\bas\s+(?:fully\s+)?correct"
            r"|\b(?:dear|note to|attention)\s+(?:the\s+)?(?:grader|judge|evaluator)"
            r"|\byou are (?:now )?(?:a|the) (?:grader|judge|evaluator)",
            re.IGNORECASE,
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Neutraliser:
    """Makes texts harmless for one template.

    ``delimiters`` are the template's own tags (``<candidate>``, ``</candidate>``). Blanks in them, the case of their
    letters and letters that look alike do not matter, since they do not matter to a reader either. ``tokens`` are
    further texts that may not stand in a slot: the special tokens of the judge's own tokenizer
    (``gavel.models.calls.special_tokens``).
    """

    delimiters: tuple[str, ...]
    tokens: tuple[str, ...] = ()
    _own: re.Pattern[str] = field(init=False, repr=False)
    _extra: re.Pattern[str] = field(init=False, repr=False)
    _markup: re.Pattern[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for tag in self.delimiters:
            if not re.fullmatch(r"</?[a-z_]+>", tag):
                raise ValueError(f"delimiter {tag!r}; allowed: tags such as <name> and </name>")
        names = sorted({tag.strip("</>") for tag in self.delimiters})
        accented = "|".join(_ACCENTS.join(name) + _ACCENTS for name in names)
        slash = r"\s*+(?:/\s*+)?"  # possessive: blanks are never given back, so that a long run of them is read once
        own = rf"{_LEFT}{slash}(?:{accented})(?:\s[^<>\n]{{0,80}})?{slash}{_RIGHT}" if names else ""
        tokens = "|".join(re.escape(fold_lookalikes(token)) for token in sorted(self.tokens, key=len, reverse=True))
        object.__setattr__(self, "_extra", re.compile(tokens or r"(?!)", re.IGNORECASE))
        object.__setattr__(self, "_own", re.compile(own or r"(?!)", re.IGNORECASE))
        object.__setattr__(self, "_markup", re.compile("|".join(filter(None, (tokens, _TOKENS, own))), re.IGNORECASE))

    def with_tokens(self, tokens: Iterable[str]) -> Neutraliser:
        """Return one that also makes these tokens harmless; those that the built-in list has cost nothing."""
        return Neutraliser(self.delimiters, tuple(token for token in tokens if _TOKEN.fullmatch(token) is None))

    def clean_text(self, text: str) -> str:
        """Return ``text`` without anything that could end its slot, start a turn, or hide; plain text comes back as it
        is.
        """
        if _PLAIN.fullmatch(text) and not self.tokens:
            return text
        cleaned, _ = _clean_characters(text)
        for _ in range(_ROUNDS):
            softened = _soften_marks(self._markup, cleaned)
            if softened == cleaned:
                return cleaned
            cleaned = softened
        return cleaned.translate(_BRACKETS)

    def join_parts(self, parts: Sequence[str]) -> str:
        """Join a template's texts, at even places, and the cleaned slots between them; a mark that arises where they
        meet is made harmless in what the slots hold of it.
        """
        seams = list(accumulate(map(len, parts)))[:-1]
        text = "".join(parts)
        for place in range(len(seams) - 1, -1, -1):  # the last first: what is put in moves only what follows
            before = parts[place][-_NEAR_SEAM:]
            plain = _PLAIN.fullmatch(before) if place % 2 else not _OPENED.search(before)
            for _ in range(_ROUNDS if self.tokens or not plain else 0):
                if (mark := self._find_mark_over(text, seams[place])) is None:
                    break
                start, end = mark
                softened = _soften_slots(text[start:end], start, seams)
                if softened == text[start:end]:  # its brackets are the template's own
                    break
                text = text[:start] + softened + text[end:]
        return text

    def _find_mark_over(self, text: str, seam: int) -> tuple[int, int] | None:
        """Return where a mark begins and ends that goes over a seam."""
        begin = max(seam - _NEAR_SEAM, 0)
        found = self._markup.finditer(fold_lookalikes(text[begin : seam + _NEAR_SEAM]))
        marks = ((begin + mark.start(), begin + mark.end()) for mark in found)
        return next(((start, end) for start, end in marks if start < seam < end), None)

    def find_flags(self, text: str) -> tuple[str, ...]:
        """Name what is hostile in ``text`` for this template, each name once."""
        flags = find_hostile(text)
        if (
            "chat_template_token" not in flags
            and self.tokens
            and self._extra.search(fold_lookalikes(_clean_characters(text)[0]))
        ):
            flags = (*flags, "chat_template_token")
        if _PLAIN.fullmatch(text) is None and self._own.search(fold_lookalikes(_clean_characters(text)[0])):
            flags = (*flags, "template_delimiter")
        return flags


def _soften_marks(marks: re.Pattern[str], text: str) -> str:
    pieces, position = [], 0
    for mark in marks.finditer(fold_lookalikes(text)):
        pieces += [text[position : mark.start()], _soften_mark(text[mark.start() : mark.end()])]
        position = mark.end()
    return "".join([*pieces, text[position:]]) if pieces else text


def _soften_mark(mark: str) -> str:
    softened = mark.translate(_BRACKETS)
    # A token of a tokenizer may have no bracket: a mark within it keeps it from being read as one, and shows it still.
    return softened if softened != mark else f"{mark[:1]}\u00b7{mark[1:]}"


def _soften_slots(mark: str, start: int, seams: Sequence[int]) -> str:
    """Soften a mark that begins at ``start``, but for what of it is the template's: before an even number of seams."""
    softened = "".join(
        letter.translate(_BRACKETS) if sum(seam <= place for seam in seams) % 2 else letter
        for place, letter in enumerate(mark, start)
    )
    if softened != mark or mark.translate(_BRACKETS) != mark:
        return softened
    cut = next(seam for seam in seams if start < seam < start + len(mark)) - start
    return f"{mark[:cut]}\u00b7{mark[cut:]}"


def _clean_characters(text: str) -> tuple[str, list[str]]:
    found: list[str] = []
    right_to_left = _RIGHT_TO_LEFT.search(text) is not None  # once: per mark it would be quadratic
    for flag, pattern, always, substitute in _CHARACTERS:
        keep = _never_match if always is _keep_mark and not right_to_left else always
        changed = pattern.sub(
            lambda match, keep=keep, substitute=substitute: match[0] if keep(match) else substitute,  # type: ignore[misc]
            text,
        )
        if changed != text and flag and flag not in found:
            found.append(flag)
        text = changed
    return text, found


def find_hostile(text: str) -> tuple[str, ...]:
    """Name what is hostile in a text to be judged, each name once.

    ``control_character``, ``invisible_character``, ``bidi_control`` (where no script or emoji needs them),
    ``chat_template_token``, ``verdict_words`` (it states a verdict of its own) and ``grader_instruction`` (it talks to
    the grader).
    """
    found: list[str] = []
    if not _PLAIN.fullmatch(text):
        text, found = _clean_characters(text)
    text = fold_lookalikes(text)
    if "chat_template_token" not in found and _TOKEN.search(text):
        found.append("chat_template_token")
    lower = text.lower()
    found += [
        name for name, words, pattern in _PHRASES if any(word in lower for word in words) and pattern.search(text)
    ]
    return tuple(found)


def make_fence(text: str, minimum: int = 3) -> str:
    """Return a line of backticks longer than any run of backticks in ``text``, at least ``minimum`` long."""
    longest = max(map(len, re.findall("`+", text))) if "`" in text else 0
    return "`" * max(minimum, longest + 1)
