"""Where a full stop ends a sentence: after ordinary words always, after most abbreviations before a capital."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from gavel.envs.instruction_following import check_instruction
from gavel.envs.instruction_following.languages import LANGUAGES
from gavel.envs.instruction_following.sentences import sentences

FIXTURES = Path(__file__).parents[2] / "fixtures" / "instruction_following"
REPORTS = Path(__file__).parents[4] / "shared" / "data" / "reports" / "instruction_following.jsonl"
KINDS = ("swallowed_sentence_end", "single_letter_sentence", "dot_name")

FRAMES: Mapping[str, tuple[str, str, str]] = {
    "en": ("We saw the ", ". ", "Then it rained."), "es": ("Vimos el ", ". ", "Luego llovió."),
    "fre": ("On a vu le ", ". ", "Puis il a plu."),
    "de": ("Wir sahen das ", ". ", "Danach regnete es."), "it": ("Vide il ", ". ", "Poi piovve."),
    "pt-BR": ("Vimos o ", ". ", "Depois choveu."), "ja": ("これは", "。", "次は雨。"), "zh": ("这是", "。", "然后下雨。"),
    "ko": ("우리는 ", ". ", "다음에 비가 왔다."), "hi": ("हमने ", ". ", "फिर बारिश हुई।"), "ar": ("رأينا ", ". ", "ثم هطل المطر."),
}  # fmt: skip
TITLE = "a title or form of address, which a name follows: it ends no sentence"
LINK = "links to what follows (for example, that is, including, see): it ends no sentence"
DEFENDED: Mapping[str, Mapping[str, str]] = {
    "en": {"mr mrs ms dr": TITLE, "e.g i.e": LINK},
    "es": {"d sr sra dr": TITLE},
    "fre": {"m mm me mme dr pr": TITLE, "cf": LINK},
    "de": {
        "mag dr prof hr v": TITLE, "bzw ca nr z.b max franz min abs u.a hrsg inkl d.h sog vgl ggf evtl dt geb": LINK,
    },
    "it": {"s on prof sig ss dott": TITLE},
    "pt-BR": {"d s dr sr prof": TITLE},
    "hi": {"श्री डॉ श्रीमती प्रो पं": TITLE, "सं रु": "a number follows"},
    "ar": {"م د أ": TITLE, "ه ص ج": "of the hijra, page, volume: a number or year goes with it"},
}  # fmt: skip
"""The abbreviations among the commonest words that end no sentence even there, with the reason."""
ENGLISH = {"vs": "names follow", "mr dr": TITLE}
"""The same for English abbreviations in languages without letter case."""


def defended(code: str) -> set[str]:
    listed = {**DEFENDED.get(code, {}), **({} if LANGUAGES[code].cased else ENGLISH)}
    return {word for words in listed for word in words.split()}


@pytest.mark.parametrize("code", LANGUAGES)
def test_ordinary_words_end_a_sentence_before_a_capital(code: str) -> None:
    wordfreq = pytest.importorskip("wordfreq", reason="the lists of common words are not installed (pip install wordfreq)")
    before, stop, after = FRAMES[code]
    merged = set()
    for word in wordfreq.top_n_list({"fre": "fr", "pt-BR": "pt"}.get(code, code), 5_000):
        forms = {word, word.capitalize(), word.upper()} if LANGUAGES[code].cased else {word}
        stops = {stop, ". "}
        texts = [f"{before}{form}{one}{after}" for form in forms for one in stops if any(map(str.isalnum, form))]
        if any(len(sentences(text, LANGUAGES[code])) != 2 for text in texts):
            merged.add(word)
    assert len(merged - defended(code)) < 5, sorted(merged - defended(code))


def test_abbreviations_that_go_on_end_no_sentence() -> None:
    rows = [line.split("\t") for line in (FIXTURES / "abbreviations.tsv").read_text(encoding="utf-8").splitlines()]
    wrong = [(code, text) for code, text in rows if len(sentences(text, LANGUAGES[code])) != 1]
    assert {code for code, _ in rows} == set(LANGUAGES)
    assert wrong == []


ENDS = [
    ("en", 2, "I got an A. She got a B."),
    ("en", 2, "I got an A. Mary got a B."),
    ("en", 2, "He lives in the U.S. She does not."),
    ("en", 2, "We met at 5 p.m. I went home."),
    ("en", 2, "He said No. I agreed."),
    ("en", 2, "I love art. I paint."),
    ("en", 2, "Use .NET. It works."),
    ("en", 2, "It was John and I. Mary left."),
    ("en", 2, "Edit .gitignore. Then commit."),
    ("en", 2, "We chose Plan B. Peter agreed."),
    ("en", 2, "HE ATE THE FIG. THEN HE LEFT."),
    ("en", 2, "He sat. 5 minutes passed."),
    ("en", 2, "Take vitamin C. Oranges have it."),
    ("en", 2, "We live on Main St. It is quiet."),
    ("en", 2, "I weigh 80 kg. My son weighs less."),
    ("es", 2, "Vive en EE. UU. Luego volvió."),
    ("es", 2, "Pesa 5 kg. Es mucho."),
    ("es", 2, "Está en contra. Yo no."),
    ("es", 2, "Lo vi por TV. Me gustó."),
    ("es", 2, "Murió en 44 a. C. Roma cambió."),
    ("es", 2, "Me dijo que sí, en vol. Luego se fue."),
    ("fre", 2, "Il aime l’art. L’art est beau."),
    ("fre", 2, "Des pommes, etc. L'homme partit."),
    ("fre", 2, "C'est le col. Il neige."),
    ("fre", 2, "Il fait 5 km. C'est loin."),
    ("fre", 2, "Regarde la TV. Elle marche."),
    ("fre", 2, "Il est né en mai. J'arrive."),
    ("de", 2, "Ich mag dich, du mich. Gut so."),
    ("de", 2, "Es gibt diese Art. Menschen mögen sie."),
    ("de", 2, "Es kostet 5 Mio. Danach fiel es."),
    ("de", 2, "Wir sahen TV. Peter schlief."),
    ("de", 2, "Das war Max. Peter lachte."),
    ("de", 2, "Es lebte Ludwig XIV. Danach kam keiner."),
    ("de", 2, "Das war es. 5 Leute kamen."),
    ("de", 2, "Äpfel, Birnen usw. Peter kam."),
    ("it", 2, "Mele, pere, ecc. I ragazzi mangiano."),
    ("it", 2, "Mele ecc. C'era un cane."),
    ("it", 2, "Guarda la TV. Ti piace?"),
    ("it", 2, "Pesa 5 kg. Marco pesa meno."),
    ("it", 2, "Vieni con me. 3 persone aspettano."),
    ("it", 2, "Com'è. 5 persone chiedono."),
    ("it", 2, "Ha detto di sì. Marco no."),
    ("it", 3, "Vado. Resta qui. Torno alle due."),
    ("pt-BR", 2, "Encontrei meu ex. Ele estava bem."),
    ("pt-BR", 2, "Eu li. Ela não."),
    ("pt-BR", 2, "Vi na TV. Gostei."),
    ("pt-BR", 2, "É um bom mar. Nadei."),
    ("pt-BR", 2, "Corri 5 km. Cansei."),
    ("pt-BR", 2, "Nasceu no séc. XX. Viveu muito."),
    ("ar", 2, "طوله ٢٠ سم. وهو جديد."),
    ("ar", 2, "وزنه 5 كغ. ثم زاد."),
    ("ko", 2, "키는 180 cm. 몸무게는 70 kg."),
    ("hi", 2, "उसने खाया जी. फिर गया."),
    ("hi", 2, "लंबाई २० मी. है। चौड़ाई कम है।"),
    ("hi", 2, "वह सो गई, किताब मिली. फिर गई."),
    ("zh", 2, "他有5 kg。然后走了。"),
    ("ja", 2, "これはPC. 次はTV."),
]


@pytest.mark.parametrize(("code", "count", "text"), ENDS)
def test_a_full_stop_after_a_word_ends_the_sentence(code: str, count: int, text: str) -> None:
    assert len(sentences(text, LANGUAGES[code])) == count


@pytest.mark.skipif(not REPORTS.is_file(), reason="the shared reports are not here (../shared/data/reports)")
def test_reported_sentence_ends_are_found() -> None:
    rows: list[dict[str, Any]] = [row for line in REPORTS.read_bytes().splitlines() if (row := orjson.loads(line))["kind"] in KINDS]
    wrong = [
        row["response"]
        for row in rows
        if check_instruction(row["response"], row["instruction_id"], row["kwargs"], row["language"]).passed != row["right_verdict"]
    ]
    assert (len(rows) > 0, wrong) == (True, [])
