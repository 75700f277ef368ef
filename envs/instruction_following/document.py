"""One reply, parsed once for all checks: blocks, paragraphs, sentences, words; each made when it is first asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from gavel.envs.instruction_following import text as texts
from gavel.envs.instruction_following.block import Block
from gavel.envs.instruction_following.blocks import parse_blocks, read_layout
from gavel.envs.instruction_following.languages import Language
from gavel.envs.instruction_following.plain_blocks import read_plain_blocks
from gavel.envs.instruction_following.sentences import find_end_marks, split_sentences

T = TypeVar("T")


class lazy(Generic[T]):
    """``functools.cached_property`` without the lock that Python 3.11 takes for it, which costs as much as some layers
    do: a document belongs to one thread.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> T:
        made = instance.__dict__[self._name] = self._make(instance)
        return made


class Document:
    """A reply in one language.

    ``text`` is the whole reply in NFC, trimmed, with plain line ends, without characters that do not show and with its
    HTML as a reader sees it; ``source`` is the same with the first line's indentation, and ``lines`` are its lines.
    Code blocks are part of these three only: they are no prose, and have no words or sentences.
    """

    def __init__(self, response: str, language: Language) -> None:
        self.language = language
        self._response = response
        self.source = texts.show_reply(response).strip("\n")
        self.text = self.source.strip()

    @lazy
    def literal(self) -> str:
        """The reply as it was written, HTML and all, in NFC and trimmed: for JSON and for phrases that hold HTML
        themselves.
        """
        return texts.normalise_text(self._response).strip().strip("\ufeff")

    @lazy
    def lines(self) -> list[str]:
        """The lines, indentation included."""
        return self.source.split("\n")

    @lazy
    def blocks(self) -> list[Block]:
        """All blocks in order."""
        found = read_plain_blocks(self.lines, self.language)
        return parse_blocks(*read_layout(self.source), self.language) if found is None else found

    def list_blocks(self, *kinds: str) -> list[Block]:
        """Return the blocks of some kinds."""
        return [block for block in self.blocks if block.kind in kinds]

    @lazy
    def _visible(self) -> list[str]:
        """For each block what a reader sees of it; empty for code and rules."""
        return texts.visible_of_each(
            [block.text if block.kind not in ("code", "rule") else "" for block in self.blocks]
        )

    @lazy
    def _sentences(self) -> list[list[str]]:
        """For each block its sentences; headings, titles and tables have none."""
        return [
            split_sentences(seen, self.language) if block.kind in ("paragraph", "item") else []
            for block, seen in zip(self.blocks, self._visible, strict=True)
        ]

    @lazy
    def prose(self) -> str:
        """Everything but code as a reader sees it, one block after the other: headings and table cells included,
        markers left out.
        """
        return "\n\n".join([seen for seen in self._visible if seen])

    @property
    def said(self) -> str:
        """The paragraphs and list items as a reader sees them, line by line."""
        pairs = zip(self.blocks, self._visible, strict=True)
        return "\n".join([seen for block, seen in pairs if block.kind in ("paragraph", "item")])

    @lazy
    def paragraphs(self) -> list[list[int]]:
        """For each paragraph the places of its blocks: a paragraph, a list, or a lead-in with its list.

        No headings, titles, tables, rules or code, nothing without a word; a list without blank lines between its items
        is one.
        """
        groups: list[list[int]] = []
        for place, block in enumerate(self.blocks):
            if block.kind in ("paragraph", "item"):
                if block.first or not groups:
                    groups.append([])
                groups[-1].append(place)
        seen = self._visible
        return [
            group
            for group in groups
            if texts.begins_seen(seen[group[0]]) or any(texts.has_word(seen[place]) for place in group)
        ]

    def list_paragraph_texts(self) -> list[str]:
        """Return the Markdown of each paragraph, without the first list marker."""
        return [self._join_paragraph(group) for group in self.paragraphs]

    def _join_paragraph(self, group: list[int]) -> str:
        first, *others = (self.blocks[place] for place in group)
        return first.text + "".join([f"\n{line}" for block in others for line in self.lines[block.line : block.end]])

    @property
    def sentences_of_paragraphs(self) -> list[int]:
        """For each paragraph how many sentences it has."""
        return [sum([len(self._sentences[place]) for place in group]) for group in self.paragraphs]

    @property
    def words_of_paragraphs(self) -> list[int]:
        """For each paragraph how many words it has."""
        return [sum([len(self._block_words[place]) for place in group]) for group in self.paragraphs]

    @lazy
    def sentences(self) -> list[str]:
        """The sentences of paragraphs and list items, visible text; an item without an end mark is one sentence."""
        return [sentence for found in self._sentences for sentence in found]

    @lazy
    def _read(self) -> list[str]:
        """For each block what its words are read from; where no blanks separate words, a line break in prose separates
        none.
        """
        if self.language.spaced:
            return self._visible
        return [
            seen.replace("\n", "") if block.kind in ("paragraph", "item") else seen
            for block, seen in zip(self.blocks, self._visible, strict=True)
        ]

    @lazy
    def _block_words(self) -> list[list[str]]:
        """For each block its words."""
        return texts.words_of_each(self._read, self.language)

    @lazy
    def words(self) -> list[str]:
        """The words in order, as written; see ``gavel.envs.instruction_following.text.split_words``."""
        if self.language.spaced:
            return texts.split_words("\n\n".join(self._read), self.language)
        return [word for words in self._block_words for word in words]  # a dictionary is asked once

    @lazy
    def sentence_lengths(self) -> list[int]:
        """For each sentence its number of words."""
        return [len(words) for words in texts.words_of_each(self.sentences, self.language)]

    @lazy
    def folded_words(self) -> list[str]:
        """The words as they are compared: in lower case, without typographic variants."""
        return texts.fold_text("\n".join(self.words)).split("\n") if self.words else []

    @lazy
    def folded(self) -> str:
        """The whole reply, code included, without Markdown's emphasis, as it is compared; one blank for any run of
        white space.

        Where no blanks separate words, a line break within prose separates none either."""
        return texts.fold_visible(self.text, self.language)

    @lazy
    def is_seen(self) -> bool:
        """Whether anything of the reply shows."""
        return texts.is_seen(self.text)

    @lazy
    def typeset(self) -> str:
        """The whole reply, code included, without Markdown's emphasis and typographic variants, in its own case."""
        return texts.to_plain_text(texts.extract_visible(self.text))

    @lazy
    def folded_source(self) -> str:
        """The whole reply with its Markdown, as it is compared; one blank for any run of white space."""
        return " ".join(texts.fold_text(self.text).split())

    @lazy
    def folded_literal(self) -> str:
        """``literal`` as it is compared; one blank for any run of white space."""
        return " ".join(texts.fold_text(self.literal).split())

    @lazy
    def letters(self) -> Counter[str]:
        """How often each character of the reply occurs, in lower case (or the only case it has)."""
        letters: Counter[str] = Counter()
        for letter, times in Counter(self.text).items():
            letters[letter.lower()] += times
        return letters

    @lazy
    def markdown_without_code(self) -> str:
        """The Markdown of everything but code, neither blocks nor spans."""
        return "\n\n".join([texts.strip_code(block.text) for block in self.blocks if block.kind != "code"])

    @lazy
    def prose_without_code(self) -> str:
        """``prose`` without code spans."""
        return "\n\n".join(
            [
                texts.extract_visible(texts.strip_code(block.text)) if "`" in block.text else seen
                for block, seen in zip(self.blocks, self._visible, strict=True)
                if seen
            ]
        )

    @lazy
    def endings(self) -> frozenset[str]:
        """The different runs of marks that sentences end in."""
        return frozenset(filter(None, map(find_end_marks, self.sentences)))

    def list_sections(self) -> list[tuple[int, int]]:
        """Return for each heading the range of its blocks (first, end), heading left out; not for one right above a
        deeper heading.
        """
        heads = [place for place, block in enumerate(self.blocks) if block.kind in ("heading", "title") and block.level]
        ends = [*heads[1:], len(self.blocks)]
        return [
            (head + 1, end)
            for head, end in zip(heads, ends, strict=False)
            if end > head + 1 or not self._is_deepened(head)
        ]

    def _is_deepened(self, head: int) -> bool:
        below = self.blocks[head + 1 : head + 2]
        return bool(below) and below[0].level > self.blocks[head].level

    def count_sentences(self, first: int, end: int) -> int:
        """Return how many sentences a range of blocks has."""
        return sum(len(found) for found in self._sentences[first:end])
