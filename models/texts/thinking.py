"""What of a reply is thinking and what is its answer: one definition for policies, judges and every environment.

A tag counts where a model writes it to think, not where an answer speaks about it. It is only *mentioned* in code, in
quotes or brackets (``\\boxed{<think>}``) and in the middle of a sentence ("Write <think> before notes"). What is split:

- blocks of any family of ``_FAMILIES``, as many as there are, tags in any case and with blanks in them;
- a closing tag alone: the prompt opened the block, so everything before it is thinking;
- the channels of OpenAI's harmony format: the last ``final`` is the answer, all others are thinking.

A block that never closes leaves no answer. All is linear in the length of the reply.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from gavel.models.texts.quoting import NOWHERE, Regions, find_code_spans, find_fences
from gavel.models.types import Reply


class ThinkingSplit(NamedTuple):
    """``answer`` is untrimmed; it is empty where ``finished`` is False, which says that the thinking never came to an
    end.
    """

    thinking: str
    answer: str
    finished: bool = True


def _make_tag_patterns(name: str) -> tuple[str, str]:
    return rf"(?i:<[ \t]{{0,4}}{name}[ \t]{{0,4}}>)", rf"(?i:<[ \t]{{0,4}}/[ \t]{{0,4}}{name}[ \t]{{0,4}}>)"


_FAMILIES: tuple[tuple[str, str], ...] = (
    # opening, closing: DeepSeek, Qwen, GLM, Nemotron and most others; Claude; EXAONE; Seed-OSS; LongCat
    *(
        _make_tag_patterns(name)
        for name in ("think", "thinking", "thought", "reasoning", "seed:think", "longcat_think")
    ),
    (r"\[THINK\]", r"\[/THINK\]"),  # Mistral
    ("◁think▷", "◁/think▷"),  # Kimi
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),  # OpenThinker, Sky-T1
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),  # Command A
    (r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),  # Apertus
    (r"<\|channel>thought", r"<channel\|>"),  # Gemma 4
)
_TAG = re.compile(
    "(?=[<\\[◁])(?:"
    + "|".join(f"(?P<o{place}>{opening})|(?P<c{place}>{closing})" for place, (opening, closing) in enumerate(_FAMILIES))
    + ")"
)
_SIGNS = ("<", "[", "◁")
_HEADER = re.compile(r"<\|channel\|>[ \t]{0,4}(\w{1,32})[^<\n]{0,200}(?:<\|constrain\|>[^<\n]{0,40})?<\|message\|>")
_CONTROL = re.compile(r"<\|(?:start|end|return|call|channel)\|>")
_UNMARKED, _UNMARKED_FINAL = "analysis", "assistantfinal"
"""A harmony reply whose control tokens the server has dropped: ``analysis…assistantfinal…``."""
_LONGEST_TAG = 300
"""Characters of a prompt's end in which an opening tag stands."""
_PAIRED = "\"'`*_"
_OPENERS = _PAIRED + "“‘«‹„»([{（「『/="
_AFTER = _PAIRED + "”’»›“«)]}）」』/,.;:!?，。、"


class _Tag(NamedTuple):
    start: int
    end: int
    family: int
    opens: bool
    mentioned: bool
    code: bool  # inside a code span: such a closing tag does not even end a block


def split_reply(reply: Reply) -> ThinkingSplit:
    """Split a policy's reply. A server that kept the thinking apart (``reply.reasoning``) has closed the block already,
    so what would leave no answer then is no tag but text."""
    if reply.reasoning is None:
        return split_thinking(reply.text, opened=reply.think_prefilled)
    split = split_thinking(reply.text)
    return split if split.answer.strip() else ThinkingSplit("", reply.text)


def split_thinking(text: str, *, opened: bool = False) -> ThinkingSplit:
    """Split a text into its thinking and its answer.

    Args:
        text: a whole reply.
        opened: the prompt opened the block, so the text starts inside it and without a closing tag has no answer.
    """
    if (found := _split_channels(text, opened=opened)) is not None:
        return found
    if not any(sign in text for sign in _SIGNS) or _TAG.search(text) is None:
        return ThinkingSplit(text, "", finished=False) if opened else ThinkingSplit("", text)
    return _Splitter(text, opened=opened).split_text()


def is_thinking_open(prompt: str) -> bool:
    """Tell whether a rendered prompt, or its end, leaves a thinking block open (``Reply.think_prefilled`` of a reply to
    it).
    """
    end = prompt.rstrip()[-_LONGEST_TAG:]
    tag = next((tag for tag in _TAG.finditer(end) if tag.end() == len(end)), None)
    if tag is not None:
        return (tag.lastgroup or "").startswith("o")
    return any(header.end() == len(end) and header[1] != "final" for header in _HEADER.finditer(end))


def is_thinking_tag(token: str) -> bool:
    """Tell whether a token is a tag around thinking: where it is a special one, a text without special tokens has lost
    it.
    """
    return token == "<|channel|>" or _TAG.fullmatch(token) is not None


class _Splitter:
    """Walks over the tags of one text."""

    def __init__(self, text: str, *, opened: bool) -> None:
        self._text, self._opened = text, opened
        self._tags = list(_find_tags(text))
        # The places of the closing tags that can end a block, by family; each list is read from its end.
        self._closings: dict[int, list[int]] = defaultdict(list)
        for place in range(len(self._tags) - 1, -1, -1):
            tag = self._tags[place]
            if not tag.opens and not tag.code:
                self._closings[tag.family].append(place)
                self._closings[-1].append(place)

    def split_text(self) -> ThinkingSplit:
        thinking: list[str] = []
        answer: list[str] = []
        position = place = 0
        if self._opened:
            closing = self._find_closing(-1, -1)
            if closing is None:
                return ThinkingSplit(self._text, "", finished=False)
            thinking.append(self._text[: self._tags[closing].start])
            position, place = self._tags[closing].end, closing + 1
        while place < len(self._tags):
            tag = self._tags[place]
            place += 1
            if tag.mentioned:
                continue
            answer.append(self._text[position : tag.start])
            position = tag.end
            if not tag.opens:  # all before it was thinking
                thinking += answer
                answer = []
                continue
            closing = self._find_closing(place - 1, tag.family)
            if closing is None:
                return ThinkingSplit("".join([*thinking, *answer, self._text[position:]]), "", finished=False)
            thinking.append(self._text[position : self._tags[closing].start])
            position, place = self._tags[closing].end, closing + 1
        return ThinkingSplit("".join(thinking), "".join([*answer, self._text[position:]]))

    def _find_closing(self, place: int, family: int) -> int | None:
        """Return the next closing tag of a family, else of any: models mix ``<think>`` and ``</thinking>``."""
        for wanted in dict.fromkeys((family, -1)):
            later = self._closings[wanted]
            while later and later[-1] <= place:
                later.pop()
            if later:
                return later[-1]
        return None


def _find_tags(text: str) -> Iterator[_Tag]:
    fences, spans = find_fences(text), find_code_spans(text)
    before = 0
    for match in _TAG.finditer(text):
        kind = match.lastgroup
        assert kind is not None
        opens = kind[0] == "o"
        code = spans.contains(match.start())
        mentioned = code or fences.contains(match.start()) or _is_mentioned(text, before, match, opens=opens)
        yield _Tag(match.start(), match.end(), int(kind[1:]), opens, mentioned, code)
        before = match.end()


def _is_mentioned(text: str, since: int, match: re.Match[str], *, opens: bool) -> bool:
    """Tell whether a tag is spoken about: ``since`` is where the tag before it ends."""
    before = text[since : match.start()].rpartition("\n")[2]
    bare = before.rstrip()
    if not bare:
        return False
    blank = len(bare) < len(before)
    if bare.lstrip().startswith(">"):
        return True  # a quoted line
    if not blank and not _is_quote_open(bare):
        return False
    if blank and not (bare[-1].isalnum() or bare[-1] in ","):
        return False
    after = text[match.end() : match.end() + 2]
    if not after or after[0] == "\n":
        return opens
    if after[0] in _AFTER:
        return True
    return after[0].isspace() and (opens or after[1:].islower())


def _is_quote_open(before: str) -> bool:
    last = before[-1]
    if last not in _OPENERS:
        return False
    return last not in _PAIRED or len(before) == 1 or before[-2].isspace() or before[-2] in _OPENERS


def _split_channels(text: str, *, opened: bool) -> ThinkingSplit | None:
    if "<|channel|>" in text:
        return _split_marked(text)
    if _UNMARKED_FINAL not in text or not (opened or text.startswith(_UNMARKED)):
        return None
    thinking, _, answer = text.removeprefix(_UNMARKED).rpartition(_UNMARKED_FINAL)
    return ThinkingSplit(thinking, answer)


def _split_marked(text: str) -> ThinkingSplit | None:
    spans: Regions = find_code_spans(text) if "`" in text else NOWHERE
    fences = find_fences(text)
    thinking: list[str] = []
    answer: str | None = None
    since = 0
    for header in _HEADER.finditer(text):
        if spans.contains(header.start()) or fences.contains(header.start()) or _is_mention(text, since, header):
            continue
        since = header.end()
        stop = _CONTROL.search(text, header.end())
        content = text[header.end() : stop.start() if stop is not None else len(text)]
        if header[1] == "final":
            answer = content
        else:
            thinking.append(content)
    if not since:
        return None
    return ThinkingSplit("\n".join(thinking), answer or "", finished=answer is not None)


def _is_mention(text: str, since: int, header: re.Match[str]) -> bool:
    return not text.endswith("assistant", since, header.start()) and _is_mentioned(text, since, header, opens=True)
