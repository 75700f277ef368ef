"""Whose words stand at a place of a judge's reply: the judge's own, or ones that it shows.

A judge that explains itself repeats the text it judges, in any language and between any marks. So attributions are not
looked for one by one. It is the other way round: what a judge says itself is known by how it is said, and what is
introduced otherwise is not its own. All is linear in the length of the reply.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile

from gavel.models.texts.quoting import Regions, find_code_spans, find_fences

BLANKS_AND_MARKS = " \t\r\n*_`.~!-✅❌✔✖✗✘☑☒\ufe0f"
"""What may stand around a verdict and says nothing."""
DECORATION = BLANKS_AND_MARKS + "\"'#"
NEAR = 240
"""Characters before a place in which its own sentence, or the line that introduces it, is looked at."""
_MOST_LINES = 400
"""Lines that are looked at for an introduction."""
_PAIRS = "\"\" '' “” ‘’ «» „“ »« 「」 『』 《》 〈〉 ‹› ›‹ ＂＂ 〝〞 ｢｣ ‚‘"
_QUOTES = {pair[0]: pair[1] for pair in _PAIRS.split()}
_CURLY = re.compile(
    "“[^“”]*”|«[^«»]*»|»[^«»]*«|„[^„“”]*[“”]|「[^「」]*」|『[^『』]*』|《[^《》]*》|〈[^〈〉]*〉|‹[^‹›]*›|〝[^〝〞〟]*[〞〟]|｢[^｢｣]*｣"
    "|＂[^＂\n]*＂|‘[^‘’\n]*’"
)
_STRAIGHT = re.compile('"')
_NOUNS = "verdict|answer|conclusion|decision|judge?ment|determination|rating|result|assessment|evaluation|grade|output|label|ruling"  # noqa: E501
_HENCE = (
    r"(?:so|therefore|thus|hence|overall|finally|consequently|accordingly|in (?:conclusion|summary|short)|to "
    r"conclude|as a result|"
    r"(?:based on|given) (?:this|that|the above))"
)
_LEAD = re.compile(
    rf"(?:{_HENCE}[,: ]{{1,3}})?(?:(?:my|our|the) )?(?:final |overall |own ){{0,2}}(?:{_NOUNS})(?: (?:to|for|on) "
    rf"(?:the|this) check)?"
    rf"(?: would be| must be| is)?(?: an?)?|{_HENCE}(?:[,: ]{{1,3}}(?:it|this) is(?: an?)?)?|final|sure|ok(?:ay)?|json"
    r"|i (?:answer|conclude|rule|vote)",
    re.IGNORECASE,
)
"""What a judge says before its verdict in one sentence: "so my verdict is"."""
LINK = " \t*_`\"':：,=>→—–-"
_HENCE_IT_FOLLOWS = re.compile(rf"{_HENCE}\b[^\n]{{1,120}}[:：—–,][ *_]{{0,4}}\Z", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?;][*_]{0,3}(?=\s)|[。！？；]|,(?= (?:so|therefore|thus|hence)\b)")
_SAYS = (
    r"claim\w*|sa(?:y|ys|id)|hold\w*|stat(?:es?|ed)|contain\w*|writ\w*|wrote|quot\w*|inject\w*|includ\w*|print\w*|read\w*|repeat\w*|"
    r"words?|lines?|ends?|wants?|asks?|demands?"
)
_PARTIES = (
    r"its?|their|they|he|she|his|her|repl(?:y|ies)|responses?|candidate|assistant|policy|text|user|message|author|model"
)
_OTHERS = re.compile(rf"\b(?:{_PARTIES}|{_SAYS})\b", re.IGNORECASE)
_SAID = re.compile(rf"\b(?:{_SAYS}|{_NOUNS})\b", re.IGNORECASE)
_INTRODUCTION = re.compile(
    rf"(?:{_HENCE}[,: ]{{1,3}})?(?:(?:here(?:'s|’s| is| are)|below is|this is|now) )?(?:(?:my|our|the|a|an) "
    rf")?(?:[\w-]{{1,20}} ){{0,3}}"
    rf"(?:{_NOUNS}|json|object|reason\w*|rationale|explanation|analysis|justification|checks?|checking|steps?|summary|notes?|"
    r"criteri\w+|count\w*|observations?|review|requirements?|constraints?)\b|(?:here(?:'s|’s| is) )?my\b"
    r"|(?:first, )?(?:let me|let us|let's|let’s|i(?:'ll|’ll| will)? "
    r"(?:check|evaluate|assess|go|look|count|analy[sz]e|judge|"
    r"grade|verify|answer|conclude|give|rate))\b",
    re.IGNORECASE,
)
"""How a line begins that introduces words of the judge's own."""
_MATTER = r"(?: (?:of|on|about|for) (?:the|this) \w+)?"
_OWN_MATTER = re.compile(
    rf"\bmy (?:final |own |overall |short )?\w+{_MATTER}"
    r"|\b(?:evaluation|assessment|analysis|judge?ment|review|check\w*|verdict|reasoning|explanation) "
    r"(?:on|about|for) (?:the|this) \w+"
    r"|\b(?:evaluation|assessment|analysis|review|checks?|checking) of (?:the|this) \w+"
    r"|\b(?:checking|check|evaluate|assess|look at|go through|count in|analy[sz]e|judge|grade) (?:the|this|whether "
    r"the) \w+",
    re.IGNORECASE,
)
"""Where a judge's own work names the text it judges."""
_ATTRIBUTED = re.compile(
    r"\b(?:candidate|assistant|policy|it|they|repl(?:y|ies)|response|answer|text|user|message)\b[^.!?;\n]{0,40}"
    r"\b(?:says?|said|wrote|writes?|ends?|ended|reads?|states?|stated|contains?|outputs?|printed|prints?|claims?|was|includes?|included)\b"
    r"[^.!?;,\n]{0,20}\Z",
    re.IGNORECASE,
)
_UNFINISHED = re.compile(
    rf"(?:[:：,，、—–は]|(?<![-|])-|\b(?:{_NOUNS}|is|are|was|were|says?|said|reads?|writes?|wrote|states?|claims?|contains?|includes?|"
    r"wants?|an?|the|with|that|of|as|not|sees?|finds?|conclude|says so|as follows|like this|this way|the "
    r"following|thus))\Z",
    re.IGNORECASE,
)
"""The end of a line that what follows belongs to."""
_DISOWNED = re.compile(
    r"[\s—–,;:.*_`~\"”-]{0,20}(?:(?:this|that|these|those|such|which)(?: one)? "
    r"(?:is|was|are|were|verdict|line|object|claim|text|"
    r"stands|comes)(?! because| since| "
    r"due)|(?:is|was|are|were|says?|said|claims?|claimed|wrote|writes?|reads?)\b|as (?:the|it)\b|"
    r"so (?:says|writes|ends|the|it)\b)",
    re.IGNORECASE,
)
"""How words go on that say of what stands before them that it is somebody else's."""
_SPEAKS = r"says?|said|reads?|writes?|wrote|states?|stated|claims?|claimed|goes|answers?|answered|replies|replied"
_MARKS = "\"“”'‘«»„「『《〈‹`＂〝｢"
_UNMARKED = rf"[^.!?:：\n{_MARKS}]"
_QUOTED_ON = re.compile(
    rf"\b(?:{_PARTIES})\b{_UNMARKED}{{0,40}}\b(?:{_SPEAKS})\b{_UNMARKED}{{0,20}}[:：][ \t]{{0,4}}(?![{_MARKS} \t])\S"
    rf"|\b(?:{_PARTIES})\b[^.!?\n]{{0,60}}\b(?:like this|as follows|the following(?: \w{{1,20}})?)[.:…]{{0,3}}\Z",
    re.IGNORECASE,
)
"""Where a line begins to quote without marks: nothing says where the quotation ends."""
_EXAMINES = re.compile(
    r"\W{0,9}(?:(?:looking at|examining|reviewing|considering|checking|analy[sz]ing|evaluating|assessing|comparing"
    r"|counting|going through)\b|(?:the |this |key |main |step )?(?:checks?|instructions?|requirements?|constraints?"
    rf"|criteri\w+|task|question|points|findings|details|facts|\d{{1,3}})\b(?!.*\b(?:{_PARTIES})\b))",
    re.IGNORECASE,
)
"""How a line begins that opens the judge's own work, or says what is asked."""
_HEADING = re.compile(r"[ \t]{0,3}(?:#{1,6}[ \t]|\*\*[^*]{1,80}\*\*[:：]?\Z)")
_ENGLISH = re.compile(
    r"\b(?:the|is|it|its|this|that|has|have|because|since|and|are|of|with|does|but|there|only|both|each)\b",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(
    r"\bnot (?:me|mine|I|my)\b|\b(?:quot(?:e|ed|es|ing|ation)|copied|copy of|disagree|injected)\b"
    r"|\b(?:not|n't|n’t) agree\b|\b(?:actual|real|true) (?:verdict|answer|judge?ment)\b"
    rf"|\b(?:{_PARTIES})\b[^.!?\n]{{0,40}}\b(?:{_SPEAKS}|want(?:s|ed)|asks?|asked|demands?)\b"
    r"(?=[ ]?(?:[,.;!—–)]|\Z|so\b|this\b|of itself))"
    rf"|\A\W{{0,9}}(?:\w{{1,12}} ){{0,2}}(?:{_PARTIES})\W{{0,9}}\Z",
    re.IGNORECASE,
)
"""How a line takes back the verdict before it."""
_ITEM = re.compile(r"[ \t]{0,9}(?:[-*+•]|\d{1,3}[.)])[ \t]")
_MARKS_ALONE = re.compile(r"(?:[-=*_ |:]{3,}|[-*+•→>#]{0,9}|\d{1,3}[.)])")
_FENCE_END = re.compile(r"(?:`{3,}|~{3,})[\w+-]{0,20}\Z")
_FENCE_LINE = re.compile(r"^ {0,3}(?:`{3,}|~{3,})[ \t]{0,9}[\w+-]{0,20}[ \t]{0,9}$", re.MULTILINE)
_BLOCK_START = re.compile(r" {0,3}(?:#{1,6} |[-*+] |\d{1,9}[.)] |`{3}|~{3}|[-_]{3}|\*{3}\s*$)")
_LABELS = ("", "json")


class Shown:
    """What of a reply is only shown: code, quoted lines, and what stands in quotation marks.

    ``objects`` are its JSON objects, whose quotation marks quote nothing. ``head`` and ``tail`` are where its text
    begins and ends, blanks and marks aside.
    """

    def __init__(self, body: str, objects: Regions) -> None:
        self._body, self._objects = body, objects
        self._quotes, self._lines = (
            _make_regions(_find_quotations(body, objects)),
            _make_regions(_find_shown_lines(body)),
        )
        self._fences, self._spans = _find_blocks(body, self._quotes), find_code_spans(body)
        self.tail = len(body.rstrip(BLANKS_AND_MARKS))
        self.head = len(body) - len(body.lstrip(BLANKS_AND_MARKS))
        self._own = self._find_own_fences()

    def is_in_object(self, position: int) -> bool:
        """Tell whether a place lies in a JSON object."""
        return self._objects.contains(position)

    def is_in_shown_block(self, position: int) -> bool:
        """Tell whether a place lies in a fence or a code span, be it the judge's own."""
        return self._fences.contains(position) or self._spans.contains(position)

    def is_reply_start(self, start: int) -> bool:
        """Tell whether nothing stands before a place but blanks, marks, and the first line of a fence of the judge's
        own.
        """
        return start <= self.head or (self._own.contains(start) and self._own.start_of(start) <= self.head)

    def is_only_shown(self, start: int, end: int, *, line: bool = False) -> bool:
        """Tell whether the words from ``start`` to ``end``, a whole line or less, are only shown; the judge's own block
        is not.
        """
        if self._own.contains(start):
            return False
        if self._lines.contains(start) or self._fences.contains(start):
            return True
        if line:
            return False
        if self._spans.contains(start):  # one code span that is the whole last line is the judge's own
            before = self._body[max(start - NEAR, 0) : start].rpartition("\n")[2]
            return end < self.tail or bool(before.strip(DECORATION))
        if self._quotes.contains(start):
            return True
        before, after = self._body[max(start - 1, 0) : start], self._body[end : end + 1]
        return before in _QUOTES and after != "" and after in (_QUOTES[before], *".,;!?")

    def is_introduced(self, start: int) -> bool:
        """Tell whether the lines before a statement's own, or before its fence, may say that others wrote what
        follows.
        """
        line = self._body.rfind("\n", 0, self._fences.start_of(start)) + 1
        above = list(islice(self._iter_lines_above(line), _MOST_LINES))
        paragraph = list(takewhile(bool, above))
        before = next(filter(None, above[len(paragraph) :]), "")
        nearest = paragraph[0] if paragraph else before
        if _is_quoted_on(above):
            return True
        if _UNFINISHED.search(_strip_decoration(nearest)):
            return not is_own_introduction(nearest)
        item = _ITEM.match(self._body, line) is not None
        if not paragraph and not item:
            return False
        for text, follower in zip([*paragraph, before], ["", *paragraph], strict=True):
            ends = _strip_decoration(text)
            open_end = ends.endswith((":", "：")) or (item and not _ITEM.match(text) and _UNFINISHED.search(ends))
            if open_end and not is_own_introduction(text):
                # A list has an introduction of its own, which says nothing about the line after the list.
                return item or _ITEM.match(follower) is None or _ATTRIBUTED.search(ends[:-1]) is not None
        return False

    def _iter_lines_above(self, position: int) -> Iterator[str]:
        """Yield the lines above a place, the nearest first, up to one that is shown: what introduced that has been
        said.
        """
        while position > 0:
            begin = self._body.rfind("\n", 0, position - 1) + 1
            if self._lines.contains(begin) or self._fences.contains(begin):
                return
            text = self._body[max(begin, position - NEAR) : position].strip()
            position = begin
            text, before = _FENCE_END.sub("", text).rstrip(), text
            if not before or not _MARKS_ALONE.fullmatch(text):
                yield text

    def _find_own_fences(self) -> Regions:
        """Return the fences at the beginning and at the end that hold one object or one line and nothing else: so
        judges write their verdict."""
        places = dict.fromkeys((0, len(self._fences.starts) - 1)) if self._fences.starts else ()
        found = [(self._fences.starts[place], self._fences.ends[place]) for place in places]
        return _make_regions(
            (start, end)
            for start, end in found
            if (start <= self.head or (end >= len(self._body.rstrip()) and not self._lines.contains(start - 1)))
            and self._has_one_statement(start, end)
        )

    def _has_one_statement(self, start: int, end: int) -> bool:
        label, _, inner = self._body[start:end].partition("\n")
        lines, _, last = inner.rstrip().rpartition("\n")
        closed = bool(last.strip(" \t")) and not last.strip(" \t`~")
        if not closed and start > self.head:
            return False  # a fence that never closes, where the judge has said something before
        inner = (lines if closed else inner).strip()
        first = self._body.find("{", start)
        one_object = inner.startswith("{") and (first, first + len(inner)) in zip(
            self._objects.starts, self._objects.ends, strict=True
        )
        return label.strip(" `~\t").lower() in _LABELS and (one_object or "\n" not in inner)


def is_own_lead(words: str, *, marked: bool) -> bool:
    """Tell whether the words before a verdict in its line are the judge's own, and lead to it.

    Args:
        words: the line up to the verdict.
        marked: the verdict is known as one by its form (``[[YES]]``, an object) and may follow a whole sentence.
    """
    before, clause = _split_sentence(words)
    bare = clause.strip(DECORATION + LINK)
    if not bare:
        return not before.strip(DECORATION + LINK) or (marked and not _UNFINISHED.search(_strip_decoration(before)))
    if _LEAD.fullmatch(bare):
        return True
    if marked and _HENCE_IT_FOLLOWS.match(clause.strip()) and not _SAID.search(clause):
        return True
    return marked and clause.rstrip(" *_").endswith((":", "：")) and is_own_introduction(clause)


def is_verdict_named(words: str) -> bool:
    """Tell whether the words before a verdict in its line name it."""
    return bool(_split_sentence(words)[1].strip(DECORATION + LINK)) and is_own_lead(words, marked=False)


def is_own_introduction(line: str) -> bool:
    """Tell whether a line introduces words of the judge's own, such as "Here is my evaluation:"."""
    clause = _split_sentence(_strip_decoration(line))[1].lstrip(DECORATION + "0123456789) ")
    if _LEAD.fullmatch(clause.rstrip(DECORATION + LINK)):
        return True
    return _INTRODUCTION.match(clause) is not None and _OTHERS.search(_OWN_MATTER.sub("", clause)) is None


def is_disowned(text: str, end: int) -> bool:
    """Tell whether the words after a verdict say that it is somebody else's, or may say so in a language that is not
    read here.
    """
    if _DISOWNED.match(text, end) is not None:
        return True
    lines = [bare for line in text[end:].splitlines() if (bare := line.strip(BLANKS_AND_MARKS))]
    if any(_TAKEN_BACK.search(line) for line in lines):
        return True
    ends = (line for line in lines[:1] + lines[-1:] if re.search(r"\w", line))
    return not all(_ENGLISH.search(line) or _ITEM.match(line) or is_own_introduction(line) for line in ends)


def is_quote_end(line: str) -> bool:
    """Tell whether a line ends a quotation, or emphasis, that began before it."""
    bare = line.rstrip(" \t\r\n.!")
    if line.count('"') % 2 == 1 or (bare.endswith("''") and bare.count("''") == 1):
        return True
    mark = bare[-1:]
    return mark in ("'", "`", "*", "_") and bare.count(mark) % 2 == 1


def is_whole_quote(line: str) -> bool:
    """Tell whether a line begins with a quotation mark."""
    return line.lstrip(BLANKS_AND_MARKS).startswith(('"', "'"))


def _is_quoted_on(above: Sequence[str]) -> bool:
    """Tell whether one of the lines above a place, the nearest first, begins a quotation that nothing ends.

    A list, and what is shown between marks, ends itself.
    """
    follower = ""
    for line in above:
        if _QUOTED_ON.search(line):
            return True
        open_end = _strip_decoration(line).endswith((":", "：")) and not _ITEM.match(follower)
        own = _HEADING.match(line) or _EXAMINES.match(line) or is_own_introduction(line)
        if open_end and follower and not own:
            return True
        follower = line or follower
    return False


def _strip_decoration(line: str) -> str:
    return line.strip(DECORATION.replace("-", ""))


def _split_sentence(words: str) -> tuple[str, str]:
    """Return what stands before the last sentence, and that sentence as far as it goes."""
    end = 0
    for found in _SENTENCE_END.finditer(words):
        end = found.end()
    return words[:end], words[end:]


def _find_blocks(text: str, quotes: Regions) -> Regions:
    """Return the fences, with one that never closes: what it was meant to hold nobody knows."""
    fences = find_fences(text)
    marks = (mark.start() for mark in _FENCE_LINE.finditer(text))
    unclosed = next((mark for mark in marks if not fences.contains(mark) and not quotes.contains(mark)), None)
    if unclosed is None:
        return fences
    closed = [(start, end) for start, end in zip(fences.starts, fences.ends, strict=True) if end <= unclosed]
    return _make_regions([*closed, (unclosed, len(text))])


def _find_quotations(text: str, objects: Regions) -> Iterator[tuple[int, int]]:
    """Yield what stands between quotation marks: curly ones over lines, straight ones within one, where they can be
    paired.
    """
    found = [(match.start(), match.end()) for match in _CURLY.finditer(text)]
    position = 0
    for line in text.splitlines(keepends=True):
        if '"' in line:
            marks = [
                position + mark.start()
                for mark in _STRAIGHT.finditer(line)
                if not objects.contains(position + mark.start())
            ]
            if len(marks) % 2 == 0:
                found += zip(marks[::2], (mark + 1 for mark in marks[1::2]), strict=True)
        position += len(line)
    end = -1
    for start, stop in sorted(found):
        if start >= end:
            yield start, stop
            end = stop


def _find_shown_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield the quoted lines, with those that Markdown adds to them because no blank line stands between, and the
    indented ones.
    """
    position, goes_on, in_code = 0, False, False
    for line in text.splitlines(keepends=True):
        quoted = line[:4].lstrip().startswith(">")
        goes_on = bool(line.strip()) and not _BLOCK_START.match(line) and (quoted or goes_on)
        if quoted or goes_on or line.startswith(("    ", "\t")):
            yield position, position + len(line)
        if quoted:
            said = line.strip().lstrip("> ")
            in_code ^= said.startswith(("```", "~~~"))
            goes_on = in_code or (bool(said) and not _BLOCK_START.match(said))
        position += len(line)


def _make_regions(pairs: Iterable[tuple[int, int]]) -> Regions:
    found = list(pairs)
    return Regions([start for start, _ in found], [end for _, end in found])
