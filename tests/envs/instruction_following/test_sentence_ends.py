"""Where a full stop ends a sentence: after ordinary words always, after most abbreviations before a capital."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from gavel.envs.instruction_following import check_instruction
from gavel.envs.instruction_following.languages import LANGUAGES
from gavel.envs.instruction_following.sentences import split_sentences

FIXTURES = Path(__file__).parents[2] / "fixtures" / "instruction_following"
REPORTS = Path(__file__).parents[4] / "shared" / "data" / "reports" / "instruction_following.jsonl"
KINDS = ("swallowed_sentence_end", "single_letter_sentence", "dot_name")

FRAMES: Mapping[str, tuple[str, str, str]] = {
    "en": ("We saw the ", ". ", "Then it rained."), "es": ("Vimos el ", ". ", "Luego llovió."),
    "fre": ("On a vu le ", ". ", "Puis il a plu."),
    "de": ("Wir sahen das ", ". ", "Danach regnete es."), "it": ("Vide il ", ". ", "Poi piovve."),
    "pt-BR": ("Vimos o ", ". ", "Depois choveu."), "ja": ("これは", "。", "次は雨。"), "zh": ("这是", "。", "然后下雨。"),  # noqa: E501
    "ko": ("우리는 ", ". ", "다음에 비가 왔다."), "hi": ("हमने ", ". ", "फिर बारिश हुई।"), "ar": ("رأينا ", ". ", "ثم هطل المطر."),  # noqa: E501
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
    wordfreq = pytest.importorskip(
        "wordfreq", reason="the lists of common words are not installed (pip install wordfreq)"
    )
    before, stop, after = FRAMES[code]
    merged = set()
    for word in wordfreq.top_n_list({"fre": "fr", "pt-BR": "pt"}.get(code, code), 5_000):
        forms = {word, word.capitalize(), word.upper()} if LANGUAGES[code].cased else {word}
        stops = {stop, ". "}
        texts = [f"{before}{form}{one}{after}" for form in forms for one in stops if any(map(str.isalnum, form))]
        if any(len(split_sentences(text, LANGUAGES[code])) != 2 for text in texts):
            merged.add(word)
    assert len(merged - defended(code)) < 5, sorted(merged - defended(code))


def test_abbreviations_that_go_on_end_no_sentence() -> None:
    rows = [line.split("\t") for line in (FIXTURES / "abbreviations.tsv").read_text(encoding="utf-8").splitlines()]
    wrong = [(code, text) for code, text in rows if len(split_sentences(text, LANGUAGES[code])) != 1]
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
    # before a small letter, as in a reply that is all in small letters
    ("en", 2, "i have 5. you have 6."),
    ("en", 2, "i said no. then i left."),
    ("en", 2, "i am no. 1. you are no. 2."),
    ("es", 2, "voy en contra. luego vuelvo."),
    ("de", 3, "ich mag es. es ist gut. sehr gut!"),
    ("de", 2, "kommst du? ja, gern."),
    ("it", 3, "vado con lei. sta bene. poi torno."),
    ("pt-BR", 2, "encontrei meu con. ele estava bem."),
    # within quotation marks and brackets
    ("en", 3, "“I left. She stayed. We slept.”"),
    ("en", 3, '"I left. She stayed. We slept."'),
    ("en", 3, "'I left. She stayed. We slept.'"),
    ("en", 3, "He said, “I left. I ran.” Then he slept."),
    ("en", 3, "“Go! Run!” Tom said. He left."),
    ("en", 3, "I read it (it was long. It was good). Then I slept."),
    ("de", 3, "„Ich ging. Sie blieb. Wir schliefen.“"),
    ("de", 3, "»Ich ging. Sie blieb. Wir schliefen.«"),
    ("fre", 2, "Il dit : « Viens ! Vite ! »"),
    ("es", 3, "« ¿Dónde está? No lo sé. Quizá en el cajón. »"),
    ("es", 1, "«¡Ven!», dijo."),
    ("ja", 3, "「私は行く。彼女は残る。眠る。」"),
    ("ja", 1, "映画「君の名は。」を見た。"),
    ("zh", 3, "“走吧。快点。”小明说。他走了。"),
    ("zh", 3, "《我走了。她留下。我们睡了。》"),
    ("zh", 1, "我看了《你好，李焕英！》这部电影。"),
    ("ko", 3, "“나는 갔다. 그녀는 남았다. 잤다.”"),
    ("ko", 1, "『안녕?』은 좋은 책이다."),
    ("hi", 2, 'उसने कहा, "चलो। जल्दी करो।"'),
    ("ar", 3, "«ذهبت. بقيت. نمنا.»"),
    ("en", 2, "He said 'no.' She said 'yes.'"),
    ("en", 2, "Is this ok?) Yes."),
    # names, notes and citations
    ("en", 2, "It was by J.K. Rowling. I read it."),
    ("en", 2, "He went to D.C. Mary stayed."),
    ("en", 2, "Roe v. Wade is known. Read it."),
    ("en", 1, "Smith et al. (2020) agree."),
    ("en", 1, "See Smith, J. (2020)."),
    ("de", 1, "Die GmbH & Co. KG wächst."),
    ("es", 2, "Trabaja en la S.A. Gana bien."),
    ("en", 2, "Sentence one.¹ Sentence two.²"),
]


@pytest.mark.parametrize(("code", "count", "text"), ENDS)
def test_a_full_stop_after_a_word_ends_the_sentence(code: str, count: int, text: str) -> None:
    assert len(split_sentences(text, LANGUAGES[code])) == count


@pytest.mark.skipif(not REPORTS.is_file(), reason="the shared reports are not here (../shared/data/reports)")
def test_reported_sentence_ends_are_found() -> None:
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


@pytest.mark.parametrize("code", [code for code, language in LANGUAGES.items() if language.spaced])
def test_exclamations_that_the_library_takes_for_names_end_sentences(code: str) -> None:
    for exclaimed in ("Yum! It is good.", "We said Yum! Then we left.", "Yum? Really.", "Was it Yahoo? It was."):
        assert len(split_sentences(exclaimed, LANGUAGES[code])) == 2
    assert len(split_sentences("They asked Yahoo! Answers about it.", LANGUAGES[code])) == 1
