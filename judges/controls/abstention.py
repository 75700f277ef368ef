"""Known answers for the rubrics that grade factoid answers: right, wrong and withheld ones, each beside its near
miss.
"""

from __future__ import annotations

from gavel.judges.types import Control

QUESTION_SLOTS = ("question", "reference", "answer")
LABELS = ("correct", "incorrect", "abstained")

_PENICILLIN = ("Who discovered penicillin in 1928?", "Alexander Fleming")
_TRIAL = ("Who wrote the novel 'The Trial', published in 1925?", "Franz Kafka")
_LAKE = ("What is the surface area of the lake in square kilometres?", "536")
_POPULATION = ("About how many people lived in the country in 1950?", "50 million")
_SECTION = ("Which section of the act says that goods must match their description?", "section 13")
_PORT = ("On which TCP port does the service listen by default?", "8443")
_CAPITAL = ("What is the capital of Australia?", "Canberra")
_VITAMIN = ("Lack of which vitamin causes scurvy?", "vitamin C")

_ROWS: tuple[tuple[str, tuple[str, str], str, str], ...] = (
    ("correct", _CAPITAL, "Canberra", "correct"),
    ("correct_sentence", _VITAMIN, "Scurvy is caused by a lack of vitamin C (ascorbic acid).", "correct"),
    ("incorrect", _CAPITAL, "Sydney", "incorrect"),
    ("incorrect_sentence", _VITAMIN, "Scurvy is caused by a lack of vitamin D.", "incorrect"),
    ("abstention_token", _CAPITAL, "[IDK]", "abstained"),
    ("abstention_implicit", _TRIAL, "I'm not sure; I would have to look that up.", "abstained"),
    ("abstention_plain", _SECTION, "I don't know.", "abstained"),
    ("number_to_last_figure", _POPULATION, "50.2 million", "correct"),
    ("number_wrong", _LAKE, "365", "incorrect"),
    ("section_off_by_one", _SECTION, "section 14", "incorrect"),
    ("identifier_off_by_one_digit", _PORT, "8433", "incorrect"),
    ("surname_only", _PENICILLIN, "Fleming", "correct"),
    ("surname_wrong", _PENICILLIN, "Florey", "incorrect"),
    ("name_with_typo", _TRIAL, "Frans Kafka", "correct"),
)

ABSTENTION_CONTROLS: tuple[Control, ...] = tuple(
    Control(name, {"question": question, "reference": reference, "answer": answer}, (expected,))
    for name, (question, reference), answer, expected in _ROWS
)
