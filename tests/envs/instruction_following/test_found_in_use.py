"""Replies as people and models write them, by kind: what failed in use, with its right verdict, and more of the same
kind.
"""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from gavel.envs.instruction_following import check_instruction

REPORTS = Path(__file__).parents[4] / "shared" / "data" / "reports" / "instruction_following.jsonl"
KINDS = (
    "indented_prose", "fenced_prose", "invisible_in_word", "invisible_filler", "hidden_markup", "html", "math_placeholder",  # noqa: E501
    "dash_is_no_bullet", "ordinal_as_marker", "postscript_lines", "section_label", "balance_label", "single_letter_sentence",  # noqa: E501
    "dot_name", "swallowed_sentence_end", "grouped_number", "gender_mark", "possessive", "korean_particle",
)  # fmt: skip


def verdict(instruction: str, response: str, language: str = "en", **arguments: Any) -> bool | None:
    return check_instruction(response, instruction, arguments, language).passed


@pytest.mark.skipif(not REPORTS.is_file(), reason="the reports are not here (../shared/data/reports)")
@pytest.mark.parametrize("kind", KINDS)
def test_every_reported_reply_gets_its_right_verdict(kind: str) -> None:
    rows = [row for row in map(orjson.loads, REPORTS.read_bytes().splitlines()) if row["kind"] == kind]
    assert rows
    wrong = [
        (row["instruction_id"], row["response"][:80])
        for row in rows
        if verdict(row["instruction_id"], row["response"], row["language"], **row["kwargs"]) != row["right_verdict"]
    ]
    assert wrong == []


WORDS, PARAGRAPHS, SENTENCES = (
    "length_constraints:number_words", "detectable_format:number_paragraphs", "detectable_format:sentence_count",
)  # fmt: skip
BULLETS, NUMBERS, HEADINGS = (
    "detectable_format:number_bullet_lists", "detectable_format:numbered_list", "detectable_format:heading_depth",
)  # fmt: skip
HOLES, SECTIONS, POSTSCRIPT = (
    "detectable_content:number_placeholders", "detectable_format:multiple_sections", "detectable_content:postscript",
)  # fmt: skip


@pytest.mark.parametrize(
    ("response", "words"),
    [
        ("    The cat sat on the mat.\n    It was warm.", 9),
        ("\tIch gehe heute nach Hause.", 5),
        ("Intro line.\n\n    def add(a, b):\n        return a + b\n\nEnd.", 3),
        ("Run it:\n\n    $ pip install gavel\n    $ gavel rollout\n", 2),
        ("```\nThe cat sat on the mat and slept.\n```", 8),
        ("```text\nThe cat sat on the mat and slept.\n```", 8),
        ("```python\nThe cat sat on the mat and slept.\n```", 8),
        ("```\nRoses are red\nViolets are blue\nSugar is sweet\n```", 9),
        ("```\nx = 1\ny = foo(x)\n```\nDone now.", 2),
        ("```\nfive\n```", 0),
        ("~~~\nThis is a whole sentence in tildes.\n~~~", 7),
        ("- Step one:\n\n      print(x)\n      return y\n", 2),
    ],
)
def test_a_fence_or_an_indentation_takes_prose_out_of_no_count_and_code_stays_code(response: str, words: int) -> None:
    assert verdict(WORDS, response, relation="equal to", num_words=words)


@pytest.mark.parametrize(
    ("response", "words"),
    [
        ("<p>Hello there</p><p>my friend</p>", 4),
        ("<ul><li>one</li><li>two</li></ul>", 2),
        ("A <a href='https://x.y/z'>link</a> here", 3),
        ("Fish&nbsp;&amp;&nbsp;chips", 2),
        ("Caf&eacute; cr&#232;me", 2),
        ("Say `<b>` and `&amp;` here", 4),
        ("Use <name> as the name", 5),
        ("one<!-- two three -->", 1),
        ("one\n\n[note]: <> (two three)\n\ntwo", 2),
        ("one <span hidden>two three</span> four", 2),
        ("one <span style='display:none'>two three</span> four", 2),
        ("if a < b and c > d then", 7),
        ("<span style='display:none'><b>two</b> three</span>one", 1),
        ("<div hidden><div>two</div>three</div>one", 1),
        ("<span style='color:transparent'>two</span> <p style=\"left:-9999px\">three</p>one", 1),
        ('<span data-x="a>b two"></span>one', 1),
        ("<!DOCTYPE html><meta name=two><iframe>three</iframe><![CDATA[four]]>one", 1),
        ("<nav>one</nav><button>two</button>", 2),
    ],
)
def test_html_is_read_as_it_is_shown(response: str, words: int) -> None:
    assert verdict(WORDS, response, relation="equal to", num_words=words), check_instruction(
        response, WORDS, {"relation": "equal to", "num_words": words}, "en"
    )


def test_html_lists_headings_and_entities_are_those_of_the_page() -> None:
    page = "<h1>Plan</h1><ul><li>a</li><li>b</li></ul><h2>Next</h2><ol><li>c</li></ol><p>End.</p>"
    assert verdict(BULLETS, page, relation="equal to", num_bullets=2)
    assert verdict(NUMBERS, page, relation="equal to", num_numbered_items=1)
    assert verdict(HEADINGS, page, levels=[1, 2])
    assert verdict("change_case:all_caps", "<b>HELLO</b> &amp; <br>GOODBYE &lt;NOW&gt;")
    assert not verdict("change_case:all_caps", "<b>HELLO</b> &amp; GOODbYE")
    assert verdict("detectable_format:json_format", '{"html": "<ul><li>a &amp; b</li></ul>"}')
    assert verdict("startend:start_checker", "<div>Hi</div>", start_phrase="<div>")
    assert verdict("keywords:existence", "Write <br> twice", keywords=["<br>"])


@pytest.mark.parametrize(
    ("response", "holes"),
    [
        ("\\[ x^2 + y^2 = z^2 \\]", 0),
        ("\\[\n\\int_0^1 f(x)\\,dx\n\\]", 0),
        ("$$a_{[i]}$$ and [name]", 1),
        ("Let $x_{[1]} = [a]^2$ be.", 0),
        ("Costa $5 e va a [indirizzo]", 1),
        ("It costs $5 at [shop] or $6 at [mall]", 2),
        ("He said […] and [...] and [. . .]", 0),
        ("> [!WARNING]\n> Mind the gap.", 0),
        ("As shown [Smith 2020] and [Doe et al., 2019; Roe 2021].", 0),
        ("He writed [sic] it to [name].", 1),
        ("[text](https://a.b) and [text][ref] and [1] and [^2] and [x]", 0),
        ("Dear [Name], meet me at [place] on [date].", 3),
        ("Call f(a[i]) with [value]", 1),
        ("\\(a_{[k]} = 1\\) for [city]", 1),
    ],
)
def test_mathematics_citations_and_ellipses_are_no_placeholders(response: str, holes: int) -> None:
    assert verdict(HOLES, response, relation="equal to", num_placeholders=holes)


@pytest.mark.parametrize(
    ("language", "response", "bullets"),
    [
        ("fre", "– Tu viens ?\n– Non, merci.", 0),
        ("fre", "Liste :\n– Pommes\n– Poires", 2),
        ("fre", "— Pommes\n— Poires", 2),
        ("pt-BR", "— Bom dia — disse ela.\n— Bom dia!", 0),
        ("es", "—Hola, dijo Ana.\n—Hola.", 0),
        ("de", "– Äpfel\n– Birnen", 2),
        ("en", "To be or not to be.\n— Shakespeare", 0),
        ("en", "> A quote.\n>\n> — Somebody", 0),
        ("en", "Options:\n— Take the bus.\n— Walk.", 2),
        ("en", "- Take the bus.\n- Walk.", 2),
        ("en", "## Tips\n— Sleep well.\n— Eat well.", 2),
    ],
)
def test_dashes_of_speech_and_attributions_are_no_bullets(language: str, response: str, bullets: int) -> None:
    assert verdict(BULLETS, response, language, relation="equal to", num_bullets=bullets)


@pytest.mark.parametrize(
    ("language", "response", "items"),
    [
        ("de", "1. Mai ist Feiertag.", 0),
        ("de", "24. Dezember: Heiligabend.", 0),
        ("de", "1. Milch\n2. Brot", 2),
        ("de", "1. Milch kaufen", 1),
        ("es", "2.ª edición, revisada.", 0),
        ("es", "1º Lavar\n2º Secar", 2),
        ("pt-BR", "3º lugar para o Brasil.", 0),
        ("it", "1ª parte del libro.", 0),
        ("en", "1. Milk\n2. Bread\n3.", 2),
        ("en", "1. Fruit\n   - apples\n2.\n   - pears", 2),
        ("en", "1.\n2.\n3.", 0),
    ],
)
def test_ordinals_and_empty_items_are_no_list(language: str, response: str, items: int) -> None:
    assert verdict(NUMBERS, response, language, relation="equal to", num_numbered_items=items)


def test_words_behind_what_is_no_mark_are_counted() -> None:
    assert verdict(WORDS, "3. Oktober ist Feiertag.", "de", relation="equal to", num_words=4)
    assert verdict(WORDS, "— Bonjour, dit Paul.\n— Salut.", "fre", relation="equal to", num_words=4)


@pytest.mark.parametrize(
    ("marker", "response", "right"),
    [
        ("P.S.", "Body.\n\nP.S. One.\n\nP.P.S. Two.", True),
        ("P.P.S.", "Body.\n\nP.S. One.\n\nP.P.S. Two.", True),
        ("P.S.", "Body.\n\nP.S. It goes on\nfor two lines.", True),
        ("P.S.", "Body.\nP.S. same paragraph", True),
        ("P.S.", "Body.\n\n**P.S.** Bold.\n\n---", True),
        ("P.S.", "Body.\n\nP.S.\n\nCall me.", True),
        ("P.S.", "Body.\n\nP.S. Bring:\n\n1. keys\n2. wallet", True),
        ("P.S.", "P.S. First.\n\nBut then a whole paragraph follows.", False),
        ("P.S.", "Body.\n\nP.S.", False),
        ("P.S.", "Body.\n\nP.S.\n\nOne.\n\nTwo.", False),
        ("PS", "Body.\n\nPsalm 23 is long.", False),
        ("追伸", "本文です。\n\n追伸 お元気で。", True),
    ],
)
def test_a_postscript_may_have_lines_a_list_and_another_postscript_after_it(
    marker: str, response: str, right: bool
) -> None:
    assert verdict(POSTSCRIPT, response, postscript_marker=marker) is right


@pytest.mark.parametrize(
    ("splitter", "response", "sections"),
    [
        ("Section", "Section 1 of 2\nA.\n\nSection 2 of 2\nB.", 2),
        ("Section", "--- Section 1 ---\nA.\n\n*** Section 2 ***\nB.", 2),
        ("Chorus", "(Chorus 1)\nla\n\n(Chorus 2)\nlo", 2),
        ("Teil", "Teil 1/2\nA.\n\nTeil 2/2\nB.", 2),
        ("Section", "Section 1 of the report says so.", 0),
        ("Part", "## [Part 1]\nA.\n\n## [Part 2]\nB.", 2),
    ],
)
def test_labels_of_sections_may_be_framed_or_count_their_total(splitter: str, response: str, sections: int) -> None:
    assert verdict(SECTIONS, response, section_splitter=splitter, relation="equal to", num_sections=sections)


@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("a) one b) two", True),
        ("See (page 3) and (a).", True),
        ("1) one (two) 3) four", True),
        ("one) two", False),
        ("(1) one (2", False),
        ("(see 2) and 3) more", True),
        ("12) twelve", True),
        ("[1) x]", True),
    ],
)
def test_labels_close_nothing_and_brackets_must(response: str, right: bool) -> None:
    assert verdict("punctuation:balance", response) is right


def test_what_shows_nothing_is_neither_title_heading_item_row_nor_character() -> None:
    assert not verdict("detectable_format:title", "<<\u3164>>\ntext")
    assert not verdict("detectable_format:title", "<<**>>\ntext")
    assert not verdict(HEADINGS, "# \u200b\n\n## &nbsp;\n\ntext", levels=[1])
    assert verdict(BULLETS, "- a\n- \u2800\n- <!-- x -->\n- &#8203;", relation="equal to", num_bullets=1)
    assert not verdict("detectable_format:table", "| a | b |\n|---|---|\n| | |\n| \u200b | |\n", min_rows=2, min_cols=2)
    assert verdict("detectable_format:table", "| a | b |\n|---|---|\n| 1 | |\n| 2 | |\n", min_rows=2, min_cols=2)
    assert verdict(PARAGRAPHS, "One.\n\n\u200b\n\n\u2800\n\n<!-- -->\n\nTwo.", relation="equal to", num_paragraphs=2)
    assert not verdict("length_constraints:number_characters", "Hi" + "\u2063" * 500, relation="at least", num_chars=10)
    assert not verdict(
        "length_constraints:number_characters", "Hi<!--" + "x" * 500 + "-->", relation="at least", num_chars=10
    )


@pytest.mark.parametrize("response", ["-", "-\n\n*\n\n+", "- <!-- one -->\n\n- <!-- two -->", "1.\n\n-\n\n2."])
def test_markers_without_text_are_neither_items_nor_paragraphs(response: str) -> None:
    seen = f"One paragraph.\n\n{response}"
    assert verdict("detectable_format:number_paragraphs", seen, relation="equal to", num_paragraphs=1)
    assert verdict("detectable_format:number_bullet_lists", seen, relation="equal to", num_bullets=0)


@pytest.mark.parametrize(
    "text", ["\\[" * 20_000, "\\]" + "\\[" * 20_000, "\\(" * 20_000, "$$a" * 15_000, "*\n" * 20_000, "-\n" * 20_000]
)
def test_marks_that_nothing_closes_cost_a_time_that_grows_with_the_reply(text: str) -> None:
    def seconds(reply: str) -> float:
        gc.disable()  # a full collection of a large process would be measured instead
        try:
            begun = time.process_time()
            check_instruction(
                reply, "detectable_content:number_placeholders", {"relation": "at least", "num_placeholders": 1}
            )
            return time.process_time() - begun
        finally:
            gc.enable()

    assert min(seconds(text * 2) for _ in range(2)) < 3 * min(seconds(text) for _ in range(3)) + 0.05


@pytest.mark.parametrize(
    "hidden",
    [
        "    # One two three four five six seven eight.",
        "    $ One two three four five six seven eight.",
        "```\n# One two three four five six seven eight.\n```",
        "```\n// One two three four five six seven eight.\n```",
        "    One two three four;\n    five six seven eight;",
    ],
)
def test_the_mark_of_a_remark_makes_no_code_of_a_sentence(hidden: str) -> None:
    assert not verdict(WORDS, hidden, relation="less than", num_words=5)
    assert verdict(
        WORDS, "Run:\n\n    # add the numbers of both lists\n    total = a + b\n", relation="equal to", num_words=1
    )


@pytest.mark.parametrize(
    ("language", "response", "bullets"),
    [
        ("en", "★ a\n★ b", 2),
        ("en", "✓ a\n✓ b", 2),
        ("en", "－ a\n＊ b", 2),
        ("ja", "･りんご\n◆みかん", 2),
        ("zh", "·一\n◎二", 2),
        ("ko", "ㆍ하나\nㆍ둘", 2),
        ("en", "• • •", 0),
        ("ja", "★★★★☆", 0),
        ("en", "Be yourself.\n– Oscar Wilde", 0),
        ("en", "– Take the bus.\n– Walk.", 2),
        ("en", "- a\n- [](http://x.y)", 1),
        ("en", "- [ ]\n- [x] b", 1),
    ],
)
def test_bullets_of_many_forms(language: str, response: str, bullets: int) -> None:
    assert verdict(BULLETS, response, language, relation="equal to", num_bullets=bullets)


@pytest.mark.parametrize(
    ("language", "response", "items"),
    [
        ("de", "1. FC Köln gewinnt.", 0),
        ("de", "1. und 2. Platz gehen an uns.", 0),
        ("de", "31. 12. ist Silvester.", 0),
        ("de", "24.12. ist Heiligabend.", 0),
        ("en", "3.14. That is pi.", 0),
        ("en", "1. a\n1.1. b\n1.2. c", 3),
        ("ar", "١ـ نقطة\n٢ـ أخرى", 2),
    ],
)
def test_numbers_of_several_parts_and_ordinals(language: str, response: str, items: int) -> None:
    assert verdict(NUMBERS, response, language, relation="equal to", num_numbered_items=items)


@pytest.mark.parametrize(
    ("response", "paragraphs"),
    [
        ("A b.\u2029C d.", 2),
        ("A b.\u2028C d.", 1),
        ("A b.\u2028\u2028C d.", 2),
        ("A b.\x0c\x0cC d.", 2),
        ("A b.\n\n⁂\n\nC d.", 2),
        ("A b.\n\n• • •\n\nC d.", 2),
        ("A b.\n\n===\n\nC d.", 2),
        ("A b.\n\n🎉\n\n...", 1),
        ("A b.\r\rC d.", 2),
    ],
)
def test_line_ends_of_every_kind_and_ornaments_part_paragraphs(response: str, paragraphs: int) -> None:
    assert verdict(PARAGRAPHS, response, relation="equal to", num_paragraphs=paragraphs)


@pytest.mark.parametrize(
    ("response", "words"),
    [
        ("- [ ] one\n- [x] two", 2),
        ("One[^1] two", 2),
        ("See [the map][m].\n\n[m]: http://a.b", 3),
        ('[a](http://b.c "d e") f', 2),
        ("![a](b_(c).png) d", 2),
        ("[1](see below) is", 2),
    ],
)
def test_boxes_notes_and_targets_are_no_words(response: str, words: int) -> None:
    assert verdict(WORDS, response, relation="equal to", num_words=words)


def test_where_a_link_goes_counts_nowhere() -> None:
    link = '[CLICK HERE](http://example.com/a.b,c/2020 "the title")'
    for check in ("change_case:all_caps", "punctuation:no_period", "punctuation:no_comma"):
        assert verdict(check, link)
    assert not verdict("detectable_content:numeric_inclusion", link, relation="at least", num_numbers=1)
    assert not verdict("length_constraints:number_characters", link, relation="at least", num_chars=20)
    assert not verdict("keywords:existence", link, keywords=["example"])
    assert verdict("change_case:last_letter", f"Now {link}.", case="uppercase")
    assert verdict("startend:end_checker", link, end_phrase=link)
    assert verdict("keywords:existence", "请用**人工**\n智能写作。", "zh", keywords=["人工智能"])


def test_html_tables_are_tables() -> None:
    page = "<table border=1><tr><th>a</th><th>b</th></tr><tr><td>1 | 2</td><td>x\ny</td></tr></table>"
    assert verdict("detectable_format:table", page, min_rows=1, min_cols=2)
    assert not verdict("detectable_format:table", page, min_rows=2, min_cols=1)
    assert verdict(WORDS, page, relation="equal to", num_words=6)


@pytest.mark.parametrize(
    ("response", "holes"),
    [
        ("[0, 1) and (0, 1]", 0),
        ("[see Smith 2020] [ibid.] [arXiv:2001.00001]", 0),
        ("In \\([a,b]\\) we", 0),
        ("\\[Name\\] \\[Date\\]", 2),
        ("$$\nMeet me by the [river gate] or at the mill.\n$$", 1),
        ("`Meet me by the [river gate] or at the mill.`", 1),
        ("Set `[name]` here", 0),
    ],
)
def test_intervals_and_references_are_no_placeholders_and_marks_of_code_hide_none(response: str, holes: int) -> None:
    assert verdict(HOLES, response, relation="equal to", num_placeholders=holes)


@pytest.mark.parametrize(
    ("marker", "response"),
    [
        ("P.S.", "Hi.\n\n- P.S. Bye."),
        ("P.S.", "Hi.\n\n### P.S.\nBye."),
        ("P.S.", "Hi.\n\n### P.S.\n\nBye."),
        ("P.S.", "Hi.\n\n🎉 P.S. Bye."),
        ("**P.S.**", "Hi.\n\n**P.S.** Bye."),
    ],
)
def test_a_postscript_may_have_marks_before_it(marker: str, response: str) -> None:
    assert verdict(POSTSCRIPT, response, postscript_marker=marker)


@pytest.mark.parametrize(
    ("language", "splitter", "response", "sections"),
    [
        ("en", "Section", "Section I\nA\n\nSection IV: Mixed\nB", 2),
        ("en", "Section", "+++ Section 1 +++\nA\n\nSection #2\nB", 2),
        ("en", "Verse", "{Verse 1}\nla\n\n『Verse 2』\nlo", 2),
        ("zh", "章", "第1章\n甲\n\n第二章：乙\n丙", 2),
        ("ko", "장", "제1장\n가\n\n제2장\n나", 2),
        ("en", "Section", "Section in brief\nA", 0),
    ],
)
def test_numbers_of_sections_may_be_roman_or_chinese(
    language: str, splitter: str, response: str, sections: int
) -> None:
    assert verdict(SECTIONS, response, language, section_splitter=splitter, relation="equal to", num_sections=sections)


def test_commas_full_stops_and_labels_of_every_form() -> None:
    assert not verdict("punctuation:no_comma", "a︐b")
    assert not verdict("punctuation:no_comma", "a⹁b")
    assert not verdict("punctuation:no_period", "a﹒b")
    assert not verdict("punctuation:no_period", "a․b")
    assert verdict("punctuation:balance", "1.) a 2.) b")
    assert verdict("detectable_content:numeric_inclusion", "1e5 or 1.5E-3", relation="equal to", num_numbers=2)


def test_marks_around_phrases_and_replies_are_read_as_meant() -> None:
    assert verdict("startend:end_checker", "Oui. Merci\u202f!", "fre", end_phrase="Merci!")
    assert verdict("startend:start_checker", "«\u00a0Oui\u00a0» dit-il.", "fre", start_phrase="«Oui»")
    assert not verdict("startend:end_checker", "Oui. Merci.", "fre", end_phrase="Merci!")
    assert verdict("startend:end_checker", "This is the end.\n\n---", end_phrase="the end.")
    for reply in ("&quot;Hi.&quot;", "> “Hi.”", "> “Hi.\n> Bye.”", "”مرحبا.“"):
        assert verdict("startend:quotation", reply)
