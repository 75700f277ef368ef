"""What the fast checks of instruction following cost; those of NeMo Gym beside them, where a copy of it is given.

    python -m benchmarks.instruction_checks [--peer CHECKOUT_OR_WHEEL] [--calls 300] [--lag-s 5]

1. All 61 checks of one English Markdown reply of 400 words, the parse included, against the sum of the peer's (which
   needs its own requirements, pandas and requests, in this environment). Median of the calls, in CPU time; ours must
   take less in total. Rows of 1, 3 and 5 checks stand beside the peer's, too, the same rows asked in turns: drawn from
   the 55 instructions that both check, because the peer answers the six others without looking at the reply.
2. The parse that all checks of a reply share: 2.5 ms or less per 1,000 words.
3. Degenerate replies (100,000 newlines, 20,000 ``[``, 10,000 ``é-``, chains of sentences, others), every check with its
   own parse: 400 ms or less each, and 2.5 times or less when the reply is twice as long.
4. The largest reply that is graded (200,000 characters) of each hostile shape, all 61 checks: 1 s or less, and 3 times
   or less when the reply is twice as long.
5. The lag of an event loop that keeps 64 gradings going in worker processes: 10 ms or less at the 99th percentile, 50
   ms at most.

Ends with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import random
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gavel.envs.instruction_following.checkers import Checkers
from gavel.envs.instruction_following.checking import CHECKS, check_document, check_instruction
from gavel.envs.instruction_following.document import Document
from gavel.envs.instruction_following.fast import FastJob
from gavel.envs.instruction_following.instructions import INSTRUCTIONS
from gavel.envs.instruction_following.languages import LANGUAGES

PARSE_MS_PER_1000_WORDS = 2.5
DEGENERATE_MS = 400.0
GROWTH = 2.5
LARGEST_CHARACTERS, LARGEST_S, LARGEST_GROWTH = 200_000, 1.0, 3.0
ROWS, ROWS_OF = 200, (1, 3, 5)
LAG_P99_MS, LAG_MAX_MS = 10.0, 50.0
GRADINGS_AT_ONCE = 64

PEER_LACKS = frozenset(
    (
        "length:max_word_count",
        "punctuation:frequency",
        "punctuation:balance",
        "punctuation:variety",
        "detectable_format:indentation",
        "detectable_format:section_balance",
    )
)
"""What the peer takes and fails without looking at the reply."""

_RELATION = {"relation": "at least"}
_FRACTIONS = {"min_fraction": "1/4", "max_fraction": "99"}
ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "change_case:capital_word_frequency": {"capital_relation": "at least", "capital_frequency": 2},
    "change_case:lowercase_word_frequency": {"lowercase_relation": "at least", "lowercase_frequency": 2},
    **{
        f"change_case:{name}_target": {"target_string": "workshop"}
        for name in ("all_caps", "lowercase", "alternating", "first_letter_cap")
    },
    "change_case:case_ratio": _FRACTIONS,
    "change_case:last_letter": {"case": "lowercase"},
    "change_case:vowel_consonant_balance": _FRACTIONS,
    "detectable_content:number_placeholders": {**_RELATION, "num_placeholders": 1},
    "detectable_content:postscript": {"postscript_marker": "P.S."},
    "detectable_content:numeric_inclusion": {**_RELATION, "num_numbers": 2},
    "detectable_format:multiple_sections": {"section_splitter": "Part", **_RELATION, "num_sections": 2},
    "detectable_format:numbered_list": {**_RELATION, "num_numbered_items": 3},
    "detectable_format:number_bullet_lists": {**_RELATION, "num_bullets": 3},
    "detectable_format:number_paragraphs": {**_RELATION, "num_paragraphs": 3},
    "detectable_format:max_paragraph_length": {"max_chars": 900},
    "detectable_format:sentences_per_paragraph": {**_RELATION, "num_sentences": 1},
    "detectable_format:sentence_count": {**_RELATION, "num_sentences": 5},
    "detectable_format:sentence_endings": {"min_variants": 2},
    "detectable_format:nested_list": {"min_depth": 2, "num_subitems": 2},
    "detectable_format:table": {"min_rows": 2, "min_cols": 3},
    "detectable_format:heading_depth": {"levels": [1, 2]},
    "detectable_format:indentation": {"indent_type": "spaces", "size": 2},
    "detectable_format:section_balance": {"element_type": "bullets", "count": 3},
    "keywords:existence": {"keywords": ["bicycle", "workshop", "neighbours"]},
    "keywords:frequency": {"keyword": "workshop", **_RELATION, "frequency": 2},
    "keywords:forbidden_words": {"forbidden_words": ["expensive", "impossible"]},
    "keywords:letter_frequency": {"letter": "e", "let_relation": "at least", "let_frequency": 20},
    "keywords:alliteration": {"target_letter": "b", **_RELATION, "num_alliteration": 5},
    "keywords:palindrome_word": {"min_length": 4},
    "keywords:positioning": {"keyword": "bicycle", "position": 2},
    "keywords:vowel_count": {**_RELATION, "num_vowels": 100},
    "keywords:consonant_count": {**_RELATION, "num_consonants": 100},
    "length_constraints:number_characters": {**_RELATION, "num_chars": 1000},
    "length_constraints:number_words": {**_RELATION, "num_words": 300},
    "length_constraints:sentence_length": {"max_words": 60},
    "length_constraints:word_repetition": {"max_repeats": 60},
    "length_constraints:unique_words": {**_RELATION, "num_unique": 100},
    "length_constraints:word_length": {"min_length": 1, "max_length": 30},
    "length_constraints:avg_word_length": {"min_ratio": 2, "max_ratio": 9},
    "length_constraints:paragraph_length": {**_RELATION, "words_per_paragraph": 3},
    "length:max_word_count": {"max_words": 900},
    "punctuation:question_exclaim": {**_RELATION, "num_marks": 1},
    "punctuation:end_rule": {"allowed": [".", "!", "?"]},
    "punctuation:frequency": {"punctuation": ";", **_RELATION, "frequency": 1},
    "punctuation:variety": {"min_types": 4},
    "startend:start_checker": {"start_phrase": "How our"},
    "startend:end_checker": {"end_phrase": "old pedals"},
    "startend:wrap_checker": {"wrap_phrase": "***"},
}
"""Arguments of every instruction that takes some."""

_OPENING = """# How our bicycle workshop works

Every Tuesday evening the community centre lends us its cellar, and a dozen neighbours bring whatever squeaks. Nobody pays, and nobody \
is turned away; the only rule is that you hold the spanner yourself. Since 2019 we have brought back 412 bicycles. Isn't that something?

## What you find there

- Four stands and a **truing** jig
- Shelves with
  - brake pads
  - inner tubes
- A kettle that never rests

## Part 1

"""  # noqa: E501
_MIDDLE = """Most visitors arrive with a flat tyre and leave with a little more courage. First we look the machine over together: \
the chain, the brakes, the bearings, the lights. Then we agree on what matters today and what can wait until the clocks change. \
A loose headset, for instance, is *urgent*, while a torn saddle merely looks sad. People ask whether they need talent. They don't! \
They need an hour, some patience, and hands that may get dirty.

"""  # noqa: E501
_EXTRA = """Some come back to help. Others send a cousin, a colleague, or the child next door; all of them are welcome here \
as long as the kettle holds out.

"""  # noqa: E501
_CLOSING = """## Part 2

1. Write [your name] on the list
2. Take a stand
3. Ask before you use the grinder

| Evening | Helper | Topic |
|---|---|---|
| First | Mara | Brakes |
| Second | Tom | Gears |
| Third | Ivo | Wheels |

```python
def ready(bike): return bike.brakes and bike.lights
```

Children are welcome when somebody keeps an eye on them; the lathe is not a toy. We close at nine, sweep the floor, and argue about \
the right grease until the caretaker rings his bell.

P.S. Bring your old pedals"""  # noqa: E501
REPLY = _OPENING + 2 * _MIDDLE + _EXTRA + _CLOSING.replace("Children", _MIDDLE + "Children")

CHAINS: Mapping[str, tuple[str, str]] = {
    "40,000 of 好。": ("zh", "好。"),
    "40,000 of “好。”": ("zh", "“好。”"),
    "40,000 of あ。」": ("ja", "あ。」"),
    "40,000 of क।": ("hi", "क।"),
    "40,000 of ن؟": ("ar", "ن؟"),
    "40,000 of 가.": ("ko", "가."),
    "40,000 of «A.»": ("en", "«A.»"),
    "40,000 of (A.)": ("en", "(A.) "),
}
"""Sentences without blanks, or in quotes or brackets: language, and what is repeated up to so many characters."""

DEGENERATE: Mapping[str, Callable[[int], str]] = {
    "100,000 newlines": lambda times: "a" + "\n" * (100_000 * times) + "b",
    "20,000 [": lambda times: "[" * (20_000 * times),
    "10,000 é-": lambda times: "é-" * (10_000 * times),
    "10,000 <<": lambda times: "<<" * (10_000 * times),
    "20,000 *": lambda times: "*" * (20_000 * times),
    "20,000 blanks": lambda times: "a" + " " * (20_000 * times) + "b",
    "10,000 a.": lambda times: "a." * (10_000 * times),
    "20,000 quotes": lambda times: '"' * (20_000 * times),
    "10,000 emoji": lambda times: "😀 " * (10_000 * times),
    "20,000 |": lambda times: "|" * (20_000 * times),
    "20,000 letters": lambda times: "a" * (20_000 * times),
    "5,000 >": lambda times: ">" * (5_000 * times),
}


HOSTILE: Mapping[str, tuple[str, str]] = {
    "numbered markers": ("en", "1. a\n"),
    "numbers in a line": ("en", "1. 2. "),
    "markers only": ("en", "- \n"),
    "stars only": ("en", "*\n"),
    "<": ("en", "<"),
    "[": ("en", "["),
    "]( ": ("en", "]( "),
    "`": ("en", "`"),
    "backtick runs": ("en", "`a``b```c"),
    ">": ("en", "> > > a\n"),
    "nested items": ("en", "  - a\n"),
    "items in quotations": ("en", "> - a\n"),
    "emphasis": ("en", "**a** _b_ "),
    "fences": ("en", "```\na\n```\n"),
    "open fences": ("en", "```a\n"),
    "one word": ("en", "a"),
    "a. ": ("en", "a. "),
    "zh": ("zh", "好"),
    "zh sentences": ("zh", "好。"),
    "ja quotations": ("ja", "あ。」"),
    "tags": ("en", "<b>a</b>"),
    "open tags": ("en", "<div>"),
    "comments": ("en", "<!-- "),
    "entities": ("en", "&amp;"),
    "zero width": ("en", "a\u200b"),
    "headings": ("en", "# a\n"),
    "underlined": ("en", "a\n---\n"),
    "rules": ("en", "---\n"),
    "cells": ("en", "|a"),
    "table rows": ("en", "| a | b |\n"),
    "blank lines": ("en", "\n\n"),
    "tabs": ("en", "\ta\n"),
    "quotes": ("en", "“a.” "),
    "brackets": ("en", "(A.) "),
    "mathematics": ("en", "\\["),
    "dollars": ("en", "$a "),
    "postscripts": ("en", "P.S. a\n"),
    "definitions": ("en", "[a]: http://b\n"),
    "emoji": ("en", "😀 "),
    "marks on letters": ("en", "e\u0301\u0301"),
    "dashes": ("fre", "— a\n"),
    "titles": ("en", "<<a>>\n"),
    "list tags": ("en", "<ul><li>a"),
    "closed lists": ("en", "<ul><li><b>a</b></li></ul>"),
    "fences in turns": ("en", "```\na\n~~~\nb\n"),
    "semicolons": ("en", ";"),
    "straight quotes": ("en", '"a" '),
    "dot bullets": ("en", "• a\n"),
    "kana bullets": ("ja", "・あ\n"),
    "zh words": ("zh", "我们今天去学校"),
    "joined emoji": ("en", "👨‍👩‍👧‍👦 "),
    "right to left": ("ar", "\u200fكلمة. "),
    "piled marks": ("en", "a\u0301\u0302\u0303 "),
    "abbreviations": ("en", "Dr. Mr. e.g. "),
    "initials": ("en", "J. R. R. Tolkien "),
    "addresses": ("en", "https://a.b/c?d=e "),
    "whole tables": ("en", "| a | b | c | d |\n|---|---|---|---|\n"),
    "JSON": ("en", '{"a":['),
    "section numbers": ("en", "1.1.1. a\n"),
    "ordinals": ("de", "3. Oktober\n"),
    "shouts": ("en", "Yum! Yahoo! Yahoo? "),
    "loose joiners": ("en", "a-- b.. 'c' "),
    "open emphasis": ("en", "*a **b ***c "),
    "titles by lines": ("en", "Title\n===\n"),
}
"""Language, and what is repeated up to the largest reply."""


def median_us(call: Callable[[], object], calls: int) -> float:
    """Return the median duration in microseconds of CPU, which other users of the machine change least."""
    durations = []
    for _ in range(calls):
        start = time.thread_time_ns()
        call()
        durations.append(time.thread_time_ns() - start)
    return sorted(durations)[calls // 2] / 1000


def _fresh() -> Document:
    return Document(REPLY, LANGUAGES["en"])


def _all_checks() -> None:
    document = _fresh()
    for name in CHECKS:
        check_document(document, name, ARGUMENTS.get(name, {}))


def _parse() -> None:
    document = _fresh()
    _ = document.blocks, document.paragraphs, document.words


def load_peer(path: Path, scratch: Path) -> Callable[..., object]:
    """Return the peer's ``validate_instruction`` from a checkout, or a wheel, which is unpacked into ``scratch``."""
    if path.is_file():
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(scratch, [name for name in wheel.namelist() if "vif_validators" in name])
        path = scratch
    found = next((folder for folder in path.rglob("vif_validators") if (folder / "validator.py").is_file()), None)
    if found is None:
        raise SystemExit(f"there is no folder vif_validators in {path}")
    sys.path.insert(0, str(found.parent))
    return importlib.import_module("vif_validators.validator").validate_instruction  # type: ignore[no-any-return]


def speed(peer: Callable[..., object] | None, calls: int) -> bool:
    """Compare the 61 checks and time the parse."""
    words = len(_fresh().words)
    for _ in range(20):
        _all_checks()
    ours = {
        name: median_us(lambda name=name: check_document(_fresh(), name, ARGUMENTS.get(name, {})), calls // 5)
        for name in CHECKS
    }
    total, parse = median_us(_all_checks, calls), median_us(_parse, calls)
    theirs = {}
    if peer is not None:
        theirs = {
            name: median_us(lambda name=name: peer(REPLY, name, dict(ARGUMENTS.get(name, {})), language="en"), calls)
            for name in CHECKS
        }
    print(f"{'check of a reply of ' + str(words) + ' words':<48}{'ours alone, us':>16}{'peer, us':>10}")
    for name, duration in sorted(ours.items(), key=lambda item: -item[1]):
        print(f"{name:<48}{duration:>16.0f}{theirs.get(name, float('nan')):>10.0f}")
    _rows(peer, calls // 10)
    limit = sum(theirs.values())
    print(f"{'all 61, parsed once':<48}{total:>16.0f}{limit if theirs else float('nan'):>10.0f}")
    per_1000 = parse / words
    print(f"shared parse: {per_1000:.2f} ms per 1,000 words (bar {PARSE_MS_PER_1000_WORDS})")
    return per_1000 <= PARSE_MS_PER_1000_WORDS and (not theirs or total < limit)


def _rows(peer: Callable[..., object] | None, calls: int) -> None:
    """Print the mean of rows of a few checks, each row with its own parse; both are asked each row, one after the
    other.
    """
    draw = random.Random(0)
    both = [name for name in CHECKS if name not in PEER_LACKS]
    for size in ROWS_OF:
        ours = others = 0.0
        for row in [draw.sample(both, size) for _ in range(ROWS)]:
            ours += median_us(partial(_check, row), calls) / ROWS
            others += float("nan") if peer is None else median_us(partial(_ask, peer, row), calls) / ROWS
        print(f"{'a row of ' + str(size) + ', mean of ' + str(ROWS):<48}{ours:>16.0f}{others:>10.0f}")


def _check(row: list[str]) -> None:
    document = _fresh()
    for name in row:
        check_document(document, name, ARGUMENTS.get(name, {}))


def _ask(peer: Callable[..., object], row: list[str]) -> None:
    for name in row:
        peer(REPLY, name, dict(ARGUMENTS.get(name, {})), language="en")


def largest() -> bool:
    """Time all checks of the largest reply of each hostile shape, and of one twice as long."""
    passed = True
    print(f"{'largest reply of':<24}{'all checks, s':>14}{'twice as long':>15}{'growth':>8}")
    for name, (language, unit) in HOSTILE.items():
        once, twice = (_whole(unit * (LARGEST_CHARACTERS * times // len(unit)), language) for times in (1, 2))
        growth = twice / once if once > 0.05 else 1.0
        passed &= once <= LARGEST_S and growth <= LARGEST_GROWTH
        print(f"{name:<24}{once:>14.2f}{twice:>15.2f}{growth:>8.2f}")
    return passed


def _whole(text: str, language: str) -> float:
    gc.collect()
    begun = time.thread_time()
    document = Document(f"Start {text} end", LANGUAGES[language])
    for name in CHECKS:
        if LANGUAGES[language].code in INSTRUCTIONS[name].languages:
            check_document(document, name, ARGUMENTS.get(name, {}))
    return time.thread_time() - begun


def _slowest(text: str, language: str) -> tuple[float, str]:
    gc.collect()
    slowest = (0.0, "")
    for name in CHECKS:
        if LANGUAGES[language].code not in INSTRUCTIONS[name].languages:
            continue
        start = time.thread_time()
        check_instruction(text, name, ARGUMENTS.get(name, {}), language)
        slowest = max(slowest, ((time.thread_time() - start) * 1000, name))
    return slowest


def degenerate() -> bool:
    """Time the slowest check of each degenerate reply, and of one twice as long."""
    passed = True
    print(f"{'degenerate reply':<24}{'slowest, ms':>12}{'twice as long':>15}{'growth':>8}  check")
    cases = [(name, "en", make) for name, make in DEGENERATE.items()]
    cases += [
        (name, language, lambda times, unit=unit: unit * (40_000 * times // len(unit)))
        for name, (language, unit) in CHAINS.items()
    ]
    for name, language, make in cases:
        (once, check), (twice, _) = _slowest(make(1), language), _slowest(make(2), language)
        growth = twice / once if once > 5 else 1.0  # below, the clock decides
        passed &= once <= DEGENERATE_MS and growth <= GROWTH
        print(f"{name:<24}{once:>12.1f}{twice:>15.1f}{growth:>8.2f}  {check}")
    return passed


async def _lag(seconds: float) -> list[float]:
    checkers = Checkers()
    job = FastJob(REPLY, "en", [(name, ARGUMENTS.get(name, {})) for name in CHECKS])
    await asyncio.gather(*(checkers.check(job) for _ in range(GRADINGS_AT_ONCE)))  # workers started and warm
    end = time.perf_counter() + seconds

    async def grade() -> int:
        done = 0
        while time.perf_counter() < end:
            await checkers.check(job)
            done += 1
        return done

    async def watch() -> list[float]:
        lags = []
        while time.perf_counter() < end:
            start = time.perf_counter()
            await asyncio.sleep(0.001)
            lags.append((time.perf_counter() - start - 0.001) * 1000)
        return sorted(lags)

    lags, *done = await asyncio.gather(watch(), *(grade() for _ in range(GRADINGS_AT_ONCE)))
    checkers.close()
    print(f"{sum(done) / seconds:.0f} gradings of all 61 checks a second")
    return lags


def lag(seconds: float) -> bool:
    """Measure the event loop's lag under load."""
    lags = asyncio.run(_lag(seconds))
    p99, worst = lags[int(len(lags) * 0.99)], lags[-1]
    print(
        f"event loop, {GRADINGS_AT_ONCE} at once: lag p99 {p99:.1f} ms (bar {LAG_P99_MS:g}), max {worst:.1f} ms "
        f"(bar {LAG_MAX_MS:g})"
    )
    return p99 <= LAG_P99_MS and worst <= LAG_MAX_MS


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--lag-s", type=float, default=5.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        peer = load_peer(options.peer, Path(scratch)) if options.peer else None
        results = [speed(peer, options.calls), degenerate(), largest(), lag(options.lag_s)]
    print("pass" if all(results) else "FAIL")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
