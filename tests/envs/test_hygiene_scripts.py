"""A question inside a longer protected one is found in every script, also in those that write no blanks between
words.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gavel.envs.hygiene import Protected, split_words

QUESTIONS = {
    "en": "which river flows past the old town hall of the city of Ulm on its way south to the sea",
    "zh": "流经乌尔姆市旧市政厅并最终向东注入黑海的那条欧洲著名河流叫什么名字呢",
    "ja": "ウルム市の旧市庁舎のそばを流れて黒海に注ぐヨーロッパの有名な川の名前は何ですか",
    "th": "แม่น้ำสายใดไหลผ่านศาลากลางเก่าของเมืองอูล์มก่อนไหลลงสู่ทะเลดำ",
    "lo": "ແມ່ນ້ຳສາຍໃດໄຫຼຜ່ານສາລາກາງເກົ່າຂອງເມືອງອູມກ່ອນໄຫຼລົງສູ່ທະເລດຳ",
    "km": "តើទន្លេណាដែលហូរកាត់សាលាក្រុងចាស់នៃទីក្រុងអ៊ុលមុនពេលហូរចូលសមុទ្រខ្មៅ",
    "my": "အူမ်မြို့ဟောင်းခန်းမကိုဖြတ်သန်းစီးဆင်းပြီးပင်လယ်နက်ထဲသို့စီးဝင်သောမြစ်မှာမည်သည့်မြစ်ဖြစ်သနည်း",
    "mixed": "请问 Danube 这条河流经过 Ulm 市的旧市政厅之后最终流入哪一片海洋",
}
AROUND = {
    "en": ("Please say: ", ", and why?"),
    "zh": ("请告诉我", "为什么是这样"),
    "mixed": ("请告诉我", "为什么是这样"),
    "ja": ("教えてください", "なぜですか"),
    "th": ("ช่วยบอกหน่อยว่า", "และเพราะอะไร"),
    "lo": ("ກະລຸນາບອກ", "ແລະຍ້ອນຫຍັງ"),
    "km": ("សូមប្រាប់", "ហើយហេតុអ្វី"),
    "my": ("ပြောပြပါ", "ဘာကြောင့်လဲ"),
}


@pytest.mark.parametrize("language", QUESTIONS)
def test_a_question_inside_a_longer_protected_one_is_found_and_another_is_not(tmp_path: Path, language: str) -> None:
    before, after = AROUND[language]
    (tmp_path / "protected.txt").write_text(f"{before}{QUESTIONS[language]}{after}\n", "utf-8")
    protected = Protected([str(tmp_path / "protected.txt")])
    assert protected.match_question(QUESTIONS[language]) == "13-gram"
    assert protected.match_question(QUESTIONS[language][::-1]) is None


def test_a_mark_stays_with_its_letter_and_latin_words_beside_han_are_whole() -> None:
    assert split_words("在Ulm市 ที่") == ("在", "ulm", "市", "ที่")


def test_words_take_time_in_proportion_to_the_text() -> None:
    def seconds(size: int) -> float:
        started = time.process_time()
        for text in ("河" * size, "ที่" * size, "a\u0301" * size, "a河" * size):
            split_words(text)
        return time.process_time() - started

    seconds(1_000)
    assert seconds(100_000) < 4 * seconds(50_000)
