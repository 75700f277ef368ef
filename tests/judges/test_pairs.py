"""Two replies against each other: the rules of both orders, and what two benchmarks published, read again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from gavel.judges.pairs.published import (
    compute_llmbar_statistics,
    count_pairs,
    list_verdicts,
    read_judgebench,
    read_llmbar,
    read_llmbar_verdicts,
    read_marked_verdict,
    read_output_verdict,
)
from gavel.judges.pairs.rules import PairRule, PairVerdict, combine_orders, turn_verdict
from gavel.models.errors import InputError

PUBLISHED = Path(os.environ.get("GAVEL_PUBLISHED", "absent"))
"""A folder with copies of published files, ``owner/name/path``; they are not ours to keep."""


@pytest.mark.parametrize(
    ("shown", "swapped", "agree", "summed", "flip"),
    [
        ("first", "second", "first", "first", False),
        ("second", "first", "second", "second", False),
        ("first", "first", "tie", "tie", True),
        ("second", "second", "tie", "tie", True),
        ("first", "tie", "tie", "first", False),
        ("tie", "second", "tie", "first", False),
        ("tie", "first", "tie", "second", False),
        ("tie", "tie", "tie", "tie", False),
    ],
)
def test_the_rule_that_combines_both_orders_is_a_named_choice(
    shown: PairVerdict, swapped: PairVerdict, agree: PairVerdict, summed: PairVerdict, flip: bool
) -> None:
    rules: Mapping[PairRule, PairVerdict] = {"agree": agree, "sum": summed}
    for rule, winner in rules.items():
        grade = combine_orders(shown, swapped, rule)
        assert (grade.winner, grade.position_flip) == (winner, flip)
        assert grade.orders == (shown, turn_verdict(swapped))
        turned = combine_orders(swapped, shown, rule)  # the replies change names: so must the winner, and nothing else
        assert (turned.winner, turned.position_flip) == (turn_verdict(winner), flip)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("My final verdict is Assistant A is significantly better: [[A>>B]]", "first"),
        ("[[B>A]]", "second"),
        ("Tie: [[A=B]] … so [[A=B]].", "tie"),
        ("First [[A>B]], then [[B>A]]", None),
        ("First [[A>B]], then [[A>>B]]", None),
        ("A > B", None),
        ("[[A>=B]]", None),
        ("", None),
    ],
)
def test_marks_are_read_as_judgebench_reads_them(text: str, verdict: str | None) -> None:
    assert read_marked_verdict(text) == verdict


@pytest.mark.parametrize(
    ("text", "sentence", "verdict"),
    [
        ("Output (a)", False, "first"),
        ("Well.\n Output (b)", False, "second"),
        ("I say Output (b)", False, None),
        ("I like it. Therefore, Output (b) is better.", True, "second"),
        ("Output (b) is better. No: Output (a) is better.", True, "first"),
        ("Output (a)", True, None),
    ],
)
def test_outputs_are_read_as_llmbar_reads_them(text: str, sentence: bool, verdict: str | None) -> None:
    assert read_output_verdict(text, sentence=sentence) == verdict


def judgebench_row(label: str, *texts: str | None, source: str = "mmlu-pro-law") -> str:
    judged = [
        text and {"judgment": {"response": text}, "decision": text.strip("[]").replace(">>", ">")} for text in texts
    ]
    return json.dumps({"pair_id": "p", "source": source, "label": label, "judgments": judged})


def test_a_pair_of_judgebench_is_right_by_the_sum_of_both_orders() -> None:
    rows = [
        judgebench_row("A>B", "[[A>>B]]", "[[B>A]]"),  # right twice
        judgebench_row("A>B", "[[A=B]]", "[[B>A]]"),  # right and a tie: right
        judgebench_row("A>B", "[[A>B]]", "[[A>B]]", source="livecodebench"),  # a flip: wrong
        judgebench_row("B>A", "[[A>B]]", "[[B>A]]", source="livebench-math"),  # wrong twice
        judgebench_row("B>A", "[[B>A]]", None, source="livebench-math"),  # one order failed: it says nothing
    ]
    pairs = read_judgebench([*rows, "\n"])
    found = count_pairs(pairs)
    assert {name: (part.right, part.pairs) for name, part in found.items()} == {
        "knowledge": (2, 2),
        "coding": (0, 1),
        "math": (1, 2),
        "overall": (3, 5),
    }
    whole = found["overall"]
    assert (whole.both_right, whole.both_wrong, whole.flips, whole.with_tie, whole.unread) == (1, 1, 1, 2, 1)
    assert count_pairs(pairs, "agree")["overall"].right == 1
    assert count_pairs(pairs, from_texts=False) == found


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"judgments": [1, 2]}', judgebench_row("A", "[[A>B]]", "[[A>B]]")])
def test_what_is_no_row_of_judgebench_is_named_by_its_line(line: str) -> None:
    with pytest.raises(InputError, match="line 2"):
        read_judgebench([judgebench_row("A>B", "[[A>B]]", "[[A>B]]"), line])


def llmbar_row(label: int, *orders: tuple[str, str | None], stages: int = 1) -> dict[str, Any]:
    last = {
        f"swap = {swap}": {"completion": [text, "stop"], "winner": winner}
        for swap, (text, winner) in zip((False, True), orders, strict=True)
    }
    return {"label": label, "results": [{}] * (stages - 1) + [last]}


def test_llmbar_counts_each_order_both_and_agreement_of_the_replies_themselves() -> None:
    rows = [
        llmbar_row(1, ("Output (a)", "1"), ("Output (b)", "1")),
        llmbar_row(2, ("Output (b)", "2"), ("Output (b)", "1")),
        llmbar_row(1, ("Sorry", None), ("Output (b)", "1")),
    ]
    read = read_llmbar(json.dumps(rows), "GPT-4/Vanilla")
    verdicts = [read_llmbar_verdicts(row) for row in read]
    assert verdicts == [row.winners for row in read]
    found = compute_llmbar_statistics([row.label for row in read], verdicts)
    assert (found["correct_False"], found["correct_True"]) == (f"2 / 3 = {2 / 3 * 100}%", f"2 / 3 = {2 / 3 * 100}%")
    assert (found["correct_both"], found["equal"]) == (f"1 / 3 = {1 / 3 * 100}%", f"1 / 3 = {1 / 3 * 100}%")
    with pytest.raises(InputError, match="GPT-4/Vanilla"):
        read_llmbar('[{"results": []}]', "GPT-4/Vanilla")


@pytest.mark.parametrize(
    ("evaluator", "stages", "sentence"),
    [("GPT-4/Swap", 1, True), ("GPT-4/Swap", 2, False), ("GPT-4/CoT", 1, True), ("PaLM2/CoT", 1, False)],
)
def test_each_judge_of_llmbar_is_read_by_what_it_was_asked_for(evaluator: str, stages: int, sentence: bool) -> None:
    rows = [llmbar_row(1, ("Output (a)", "1"), ("Output (b)", "1"), stages=stages)]
    assert [row.sentence for row in read_llmbar(json.dumps(rows), evaluator)] == [sentence]


class TestPublishedFigures:
    """Needs copies of the published files: ``GAVEL_PUBLISHED=DIR``."""

    def test_o1_mini_on_judgebench_from_its_own_texts(self) -> None:
        name = (
            "dataset=judgebench,response_model=gpt-4o-2024-05-13,judge_name=arena_hard,judge_model=o1-mini-2024-09-12"
        )
        path = PUBLISHED / f"ScalerLab/JudgeBench/outputs/{name}.jsonl"
        if not path.exists():
            pytest.skip("set GAVEL_PUBLISHED to a folder with copies of the published files")
        pairs = read_judgebench(path.read_text().splitlines())
        assert all(list_verdicts(pair) == pair.stored for pair in pairs)
        found = count_pairs(pairs)
        shares = {name: round(100 * part.share, 2) for name, part in found.items()}
        assert shares == {"knowledge": 58.44, "reasoning": 62.24, "math": 82.14, "coding": 78.57, "overall": 65.71}
        whole = found["overall"]
        assert (whole.both_right, whole.both_wrong, whole.flips, whole.with_tie) == (203, 32, 76, 39)

    def test_every_stored_judge_of_llmbar(self) -> None:
        files = sorted(PUBLISHED.glob("princeton-nlp/LLMBar/Dataset/**/evaluators/*/*/result.json"))
        if not files:
            pytest.skip("set GAVEL_PUBLISHED to a folder with copies of the published files")
        for path in files:
            rows = read_llmbar(path.read_text(), f"{path.parts[-3]}/{path.parts[-2]}")
            verdicts = [read_llmbar_verdicts(row) for row in rows]
            assert verdicts == [row.winners for row in rows], path
            found = compute_llmbar_statistics([row.label for row in rows], verdicts)
            for name, value in json.loads(path.with_name("statistics.json").read_text()).items():
                same = found[name] == value if isinstance(value, str) else _is_close(found[name], value)
                assert same, (path, name, found[name], value)


def _is_close(found: object, published: float) -> bool:
    assert isinstance(found, float)
    return (isnan(found) and isnan(published)) or abs(found - published) < 1e-9
