"""Words and keywords as people write them: grouped numbers, possessives, Korean particles, both sexes in one word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from gavel.envs.instruction_following import check_instruction
from gavel.envs.instruction_following.languages import LANGUAGES
from gavel.envs.instruction_following.text import split_words

REPORTS = Path(__file__).parents[4] / "shared" / "data" / "reports" / "instruction_following.jsonl"
KINDS = ("grouped_number", "gender_mark", "possessive", "korean_particle")


@pytest.mark.skipif(not REPORTS.is_file(), reason="the shared reports are not here (../shared/data/reports)")
def test_reported_words_numbers_and_keywords_are_right() -> None:
    rows: list[dict[str, Any]] = [
        row for line in REPORTS.read_bytes().splitlines() if (row := orjson.loads(line))["kind"] in KINDS
    ]
    wrong = [
        row["response"]
        for row in rows
        if check_instruction(row["response"], row["instruction_id"], row["kwargs"], row["language"]).passed
        != row["right_verdict"]
    ]
    assert (len(rows) > 0, wrong) == (True, [])


@pytest.mark.parametrize(
    ("code", "text", "count"),
    [
        ("fre", "1\u202f000\u202f000", 1),
        ("fre", "12\u00a0345,67", 1),
        ("es", "1\u2009500\u2009000", 1),
        ("de", "1’500.50", 1),
        ("it", "CHF 12'345'678", 1),
        ("pt-BR", "10\u00a0000", 1),
        ("en", "2020 2021 2022", 3),
        ("en", "2020\u00a02021", 2),
        ("en", "10 000", 2),
        ("en", "12345\u00a0678", 2),
        ("en", "1,500 3.14 7:30", 3),
        ("de", "5'30", 2),
        ("ko", "1\u00a0000명", 1),
        ("ar", "١\u00a0٠٠٠", 1),
        ("hi", "१'५००", 1),
        ("en", "Call 555\u00a01234", 2),
        ("fre", "1\u202f000 2\u202f000", 2),
    ],
)
def test_thousands_set_apart_by_an_apostrophe_or_a_blank_that_does_not_break_are_one_number(
    code: str, text: str, count: int
) -> None:
    arguments = {"relation": "equal to", "num_numbers": count}
    assert check_instruction(text, "detectable_content:numeric_inclusion", arguments, code).passed


@pytest.mark.parametrize(
    ("code", "text", "found"),
    [
        ("fre", "Il y a 1\u202f000\u202f000 habitants", ["Il", "y", "a", "1\u202f000\u202f000", "habitants"]),
        ("de", "Es sind 12\u00a0345,67 Euro", ["Es", "sind", "12\u00a0345,67", "Euro"]),
        ("de", "CHF 1'500 zahlen", ["CHF", "1'500", "zahlen"]),
        ("ko", "인구 1\u00a0000명 증가", ["인구", "1\u00a0000명", "증가"]),
        ("en", "In 2020\u00a02021 began", ["In", "2020", "2021", "began"]),
        ("de", "Alle Lehrer:innen und Kolleg*innen", ["Alle", "Lehrer:innen", "und", "Kolleg*innen"]),
        ("de", "Schüler/-innen, Bürger/innen, Student_innen", ["Schüler/-innen", "Bürger/innen", "Student_innen"]),
        ("de", "jede:r Arzt:in kam", ["jede:r", "Arzt:in", "kam"]),
        ("de", "Note: er und/oder sie", ["Note", "er", "und", "oder", "sie"]),
        ("fre", "les étudiant·e·s", ["les", "étudiant·e·s"]),
        ("en", "ratio:value in/out", ["ratio", "value", "in", "out"]),
    ],
)
def test_a_word_is_one_word(code: str, text: str, found: list[str]) -> None:
    assert split_words(text, LANGUAGES[code]) == found


@pytest.mark.parametrize(
    ("code", "keyword", "text", "found"),
    [
        ("en", "company", "The company’s plan.", True),
        ("en", "company", "THE COMPANY'S PLAN", True),
        ("en", "dogs", "The dogs' food.", True),
        ("en", "company's", "The company’s plan.", True),
        ("en", "company's", "The company plan.", False),
        ("en", "James", "James's hat", True),
        ("en", "can", "I can't.", False),
        ("en", "do", "We don’t.", False),
        ("en", "we", "We'll go.", False),
        ("en", "she", "She’s here.", True),
        ("en", "s", "The company's plan.", False),
        ("en", "red fox", "A red fox’s den.", True),
        ("de", "Peter", "Peter's Auto", True),
        ("fre", "ami", "l’ami", True),
        ("ko", "경제", "경제란 무엇인가.", True),
        ("ko", "경제", "경제든 정치든 좋다.", True),
        ("ko", "경제", "이것은 경제군요.", True),
        ("ko", "경제", "문제는 경제죠.", True),
        ("ko", "경제", "경제라니 놀랍다.", True),
        ("ko", "경제", "경제잖아요.", True),
        ("ko", "학교", "여기가 학교였다.", True),
        ("ko", "한국 경제", "한국 경제란 무엇인가.", True),
        ("ko", "나라", "나라던가 도시.", True),
        ("ko", "커피", "커피냐 차냐.", True),
        ("ko", "책", "책이란 무엇인가.", True),
        ("ko", "사람", "사람이든 누구든.", True),
        ("ko", "파", "파란 하늘.", False),
        ("ko", "모", "모든 것.", False),
        ("ko", "노", "노란 꽃.", False),
        ("ko", "경제", "경제학을 배운다.", False),
        ("ko", "다리", "다리미를 샀다.", False),
        ("ko", "사과", "사과나무를 심었다.", False),
        ("ko", "기사", "기사단이 왔다.", False),
    ],
)
def test_a_keyword_is_found_as_a_word_of_its_own(code: str, keyword: str, text: str, *, found: bool) -> None:
    assert check_instruction(text, "keywords:existence", {"keywords": [keyword]}, code).passed is found
    assert check_instruction(text, "keywords:forbidden_words", {"forbidden_words": [keyword]}, code).passed is not found
