from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tests.judges.support import STRICT, prompt, scripted, word

from gavel.judges import certificate
from gavel.judges.calibration import statistics
from gavel.judges.calibration.calibrate import Swap, Verdicts, calibrate_judge, make_report
from gavel.judges.calibration.labelled import LabelledError, LabelledItem, LabelledSet, read_labelled
from gavel.judges.certificate import CertificateError, Qualification
from gavel.judges.tables import make_agreement_table, make_confusion_table
from gavel.judges.types import Grade, JudgeFailure
from gavel.models.failures import FailureKind

SHIPPED = Path(__file__).parents[2] / "envs" / "abstention" / "data" / "calibration.jsonl"
LABELS = ("correct", "incorrect", "abstained")


def table(*rows: list[int]) -> statistics.Tables:
    return np.asarray(rows, dtype=np.int64)


def test_kappa_of_a_textbook_table() -> None:
    # 50 proposals, two readers: 20 twice yes, 15 twice no, 5 and 10 split. p_o = 35/50 = 0.7;
    # p_e = (25/50)(30/50) + (25/50)(20/50) = 0.5; kappa = (0.7 - 0.5) / (1 - 0.5) = 0.4.
    assert statistics.compute_kappa(table([20, 5], [10, 15])) == pytest.approx(0.4)


def pairs(first: str, second: str) -> statistics.Tables:
    names = sorted({*first, *second})
    return statistics.count_confusion([names.index(x) for x in first], [names.index(x) for x in second], len(names))


def test_alpha_of_krippendorffs_own_examples() -> None:
    # Computing Krippendorff's Alpha-Reliability (2011), A: binary data, two observers; B: nominal data, two observers.
    assert statistics.compute_alpha(pairs("0100000010", "1110010000")) == pytest.approx(0.095, abs=5e-4)
    assert statistics.compute_alpha(pairs("aabbdcccedda", "babbbcccedd" + "d")) == pytest.approx(0.692, abs=5e-4)


def test_figures_that_are_not_defined_are_none_and_not_a_number() -> None:
    one_label = table([7, 0], [0, 0])
    always = statistics.compute_accuracy_interval([0] * 7, [0] * 7, range(7))
    assert statistics.compute_interval(statistics.compute_kappa, one_label, one_label[None], always).value is None
    assert statistics.compute_accuracy_interval([], [], []) == statistics.Interval(None, None, None, 0)


def all_right(each: int) -> statistics.Interval:
    """Kappa of a judge that is right on ``each`` questions of either of two labels."""
    truth = [0] * each + [1] * each
    found = table([each, 0], [0, each])
    agreement = statistics.compute_accuracy_interval(truth, truth, range(2 * each))
    return statistics.compute_interval(statistics.compute_kappa, found, found[None], agreement)


def test_a_few_right_answers_prove_little() -> None:
    few, many = all_right(3), all_right(80)
    assert few.value == many.value == few.high == many.high == 1.0
    # Agreement of all of n questions is at least n / (n + t^2): t(5) = 2.5706 gives 0.4758, t(159) = 1.9750 gives
    # 0.9762; the rest is
    # spread evenly, so that kappa = 2 * agreement - 1.
    assert (few.low, many.low) == pytest.approx((-0.0484, 0.9524), abs=1e-3)


def test_accuracy_has_an_interval_that_is_honest_for_two_rows_and_for_five_right_ones() -> None:
    # One of two right: v = 2/1 * (1/4 + 1/4) / 4 = 1/4, effective n = 1, t(1) = 12.7: all but nothing is excluded.
    half = statistics.compute_accuracy_interval([0, 0], [0, 1], "ab")
    assert (half.value, half.low, half.high) == pytest.approx((0.5, 0.0015, 0.9985), abs=1e-3)
    # Five of five: 5 / (5 + t(4)^2) with t(4) = 2.7764.
    five = statistics.compute_accuracy_interval([0] * 5, [0] * 5, range(5))
    assert (five.value, five.low, five.high) == pytest.approx((1.0, 0.3934, 1.0), abs=1e-3)
    assert statistics.compute_accuracy_interval([0] * 5, [0] * 5, "aaaaa") == statistics.Interval(1.0, None, None, 5)


def test_kappa_of_two_rows_excludes_next_to_nothing() -> None:
    # A judge that says the same of two rows with two labels: every draw has kappa 0, which is not known to be 0 at all.
    found = table([1, 0], [1, 0])
    agreement = statistics.compute_accuracy_interval([0, 1], [0, 0], "ab")
    kappa = statistics.compute_interval(statistics.compute_kappa, found, found[None], agreement)
    assert kappa.value == 0.0
    assert kappa.low is not None
    assert kappa.high is not None
    assert kappa.low < -0.99
    assert kappa.high > 0.99
    assert (
        statistics.compute_interval(
            statistics.compute_kappa, found, found[None], statistics.Interval(0.5, None, None, 2)
        ).low
        is None
    )


def test_the_bootstrap_draws_whole_clusters() -> None:
    # Two clusters of 5: all right, all wrong. Each draw has 0, 5 or 10 right; single rows would give other counts too.
    drawn = statistics.draw_tables([0] * 10, [0] * 5 + [1] * 5, ["a"] * 5 + ["b"] * 5, 2, draws=500)
    assert {int(one.trace()) for one in drawn} == {0, 5, 10}
    assert {int(one.sum()) for one in drawn} == {10}


def test_intervals_hold_the_true_accuracy_about_as_often_as_they_say() -> None:
    rng, held = np.random.default_rng(0), 0
    for _ in range(200):
        share = rng.beta(8, 2, size=60)  # each question has its own rate of right verdicts; the mean is 0.8
        right = rng.random((60, 4)) < share[:, None]
        truth, clusters = [0] * 240, [index // 4 for index in range(240)]
        judged = [0 if hit else 1 for hit in right.ravel()]
        found = statistics.compute_accuracy_interval(truth, judged, clusters)
        held += found.low is not None and found.high is not None and found.low <= 0.8 <= found.high
    assert 180 <= held <= 198  # 95 % of 200 is 190


def judged_with_errors(items: Sequence[LabelledItem], wrong: Mapping[str, float]) -> list[str]:
    """Give a wrong label to the stated share of each label's items, spread evenly, the two wrong ones in turn."""
    counts: Counter[str] = Counter()
    said = []
    for one in items:
        before, counts[one.label] = counts[one.label], counts[one.label] + 1
        errors = int(counts[one.label] * wrong[one.label])
        others = [label for label in LABELS if label != one.label]
        said.append(others[errors % 2] if errors > int(before * wrong[one.label]) else one.label)
    return said


async def test_a_judge_of_known_error_rates_is_measured_as_it_is(tmp_path: Path) -> None:
    said: dict[str, str] = {}
    wrong = {"correct": 0.1, "incorrect": 0.2, "abstained": 0.3}
    async with scripted(STRICT, lambda body: word(STRICT, said[prompt(body)]), tmp_path) as (_, binding, judge):
        labelled = read_labelled(SHIPPED, binding.rubric)
        labels = judged_with_errors(labelled.items, wrong)
        said |= {
            binding.rubric.render(one.slots)[0].content: label
            for one, label in zip(labelled.items, labels, strict=True)
        }
        found = await calibrate_judge(binding, judge, labelled, repeats=2, draws=1000)
    expected = sum(1 - wrong[one.label] for one in labelled.items) / len(labelled.items)
    assert found.accuracy.low is not None
    assert found.accuracy.high is not None
    assert found.accuracy.low <= expected <= found.accuracy.high
    for row, label in enumerate(LABELS):
        counts = found.confusion[row]
        assert 1 - counts[row] / sum(counts) == pytest.approx(wrong[label], abs=1 / sum(counts))
    assert sum(map(sum, found.confusion)) == found.items == len(labelled.items) >= 160
    assert found.kappa.low is not None
    assert found.kappa.value is not None
    assert found.kappa.low < found.kappa.value < 1
    assert found.flip_rate == 0.0
    assert {row.value for row in found.slices if row.field == "domain"} == {"law", "health", "software", "general"}
    assert dict(found.parses) == {"exact": found.items}
    assert found.data_digest == labelled.digest


def graded(label: str) -> Grade:
    return Grade(label, None, "", "exact", "", {}, ())


def item(number: int, label: str, reviewed: str | None = None) -> LabelledItem:
    return LabelledItem(
        {"question": f"q{number}", "reference": "r", "answer": "a"}, label, f"q{number}", {}, "us", reviewed
    )


async def test_what_failed_is_counted_by_kind_and_is_in_no_other_figure(tmp_path: Path) -> None:
    async with scripted(STRICT, lambda body: "", tmp_path) as (_, binding, _):
        items = LabelledSet(
            (item(0, "correct"), item(1, "incorrect"), item(2, "incorrect", "them"), item(3, "abstained")), "sha256:x"
        )
        failed = JudgeFailure(FailureKind.TRANSPORT_TIMEOUT, "late")
        found = make_report(binding, items, [[graded("correct"), failed, graded("correct"), graded("abstained")]])
        nothing = make_report(binding, items, [[failed] * 4])
    assert found.accuracy.n == 3
    assert found.accuracy.value == pytest.approx(2 / 3)
    assert dict(found.ungraded) == {"transport_timeout": 1}
    assert found.reviewed_share == 0.25
    assert nothing.kappa.value is None
    assert nothing.ungraded == {"transport_timeout": 4}


async def test_flips_are_counted_over_repetitions(tmp_path: Path) -> None:
    async with scripted(STRICT, lambda body: "", tmp_path) as (_, binding, _):
        items = LabelledSet((item(0, "correct"), item(1, "incorrect")), "sha256:x")
        said = (("correct", "incorrect"), ("correct", "correct"), ("correct", "incorrect"))
        rounds: list[Verdicts] = [[graded(label) for label in row] for row in said]
        found = make_report(binding, items, rounds)
    assert found.flip_rate == pytest.approx(1 / 6)


async def test_a_judge_that_prefers_a_place_shows_in_the_swap_rate(tmp_path: Path) -> None:
    mirror = {"correct": "incorrect", "incorrect": "correct"}
    swap = Swap("reference", "answer", mirror)
    slots = [{"question": f"q{number}", "reference": "zz", "answer": "aa"} for number in range(4)]
    items = LabelledSet(tuple(replace(item(0, "correct"), slots=texts) for texts in slots), "sha256:x")
    async with scripted(STRICT, lambda body: word(STRICT, "correct"), tmp_path) as (_, binding, judge):
        assert (await calibrate_judge(binding, judge, items, swap=swap)).swap_rate == 1.0

    def by_content(body: dict[str, Any]) -> str:
        return word(STRICT, "correct" if "```\naa\n```" in prompt(body)[-300:] else "incorrect")

    async with scripted(STRICT, by_content, tmp_path) as (_, binding, judge):
        assert (await calibrate_judge(binding, judge, items, swap=swap)).swap_rate == 0.0


async def test_a_low_kappa_does_not_qualify_and_a_high_one_does(tmp_path: Path) -> None:
    async with scripted(STRICT, lambda body: "", tmp_path) as (_, binding, _):
        items = LabelledSet(tuple(item(n, LABELS[n % 3]) for n in range(120)), "sha256:x")
        good = make_report(binding, items, [[graded(one.label) for one in items.items]])
        poor = make_report(
            binding, items, [[graded("correct" if n % 2 else one.label) for n, one in enumerate(items.items)]]
        )
        rules = Qualification(labelled_set=True)
        blank = certificate.read_certificate(
            certificate.write_certificate(tmp_path, binding, calibration=poor).parent, binding
        )
        assert blank is not None
        assert any("kappa" in line for line in certificate.list_shortcomings(blank, rules))
        certificate.write_certificate(tmp_path, binding, calibration=good)
        better = certificate.read_certificate(tmp_path, binding)
        assert better is not None
        assert certificate.list_shortcomings(better, rules) == ("it was never probed",)
        with pytest.raises(CertificateError, match="never probed"):
            certificate.require_certificate(tmp_path, binding, rules)


async def test_the_tables_show_slices_and_the_caution(tmp_path: Path) -> None:
    async with scripted(STRICT, lambda body: "", tmp_path) as (_, binding, _):
        labelled = read_labelled(SHIPPED, binding.rubric)
        found = make_report(binding, labelled, [[graded(one.label) for one in labelled.items]], draws=50)
    console = Console(width=160, record=True, file=(tmp_path / "out").open("w"))
    console.print(make_confusion_table(found), make_agreement_table(found))
    text = console.export_text()
    for part in (
        "domain law",
        "kind near_miss",
        "calibrates nobody's judge",
        "reviewed",
        "1.000 [",
        "Krippendorff's alpha",
    ):
        assert part in text
    near_miss = next(row for row in found.slices if row.value == "near_miss")
    assert near_miss.kappa.value is None, "one label only"
    assert near_miss.accuracy.low is not None
    assert near_miss.accuracy.low < 0.95
    assert next(row for row in found.slices if row.value == "law").kappa.value == 1.0


ROW = '{"question":"q","reference":"r","answer":"a","label":"correct"}'


@pytest.mark.parametrize(
    ("text", "where", "field"),
    [
        ("", "set.jsonl", ""),
        (f"{ROW}\n\n{{", "set.jsonl:3", ""),
        ("[1]", "set.jsonl:1", ""),
        ('{"question":"q","answer":"a","label":"correct"}', "set.jsonl:1", "reference"),
        (ROW.replace('"a"', "1"), "set.jsonl:1", "answer"),
        (ROW.replace("correct", "right"), "set.jsonl:1", "label"),
        (ROW.replace("}", ',"reviewed_by":3}'), "set.jsonl:1", "reviewed_by"),
        (ROW.replace("}", ',"references":["r","s"]}'), "set.jsonl:1", "reference, references"),
        (ROW.replace('"reference":"r"', '"references":[]'), "set.jsonl:1", "references"),
        (ROW.replace('"reference":"r"', '"references":["r",1]'), "set.jsonl:1", "references"),
        (ROW.replace('"reference":"r"', '"answerable":true'), "set.jsonl:1", "reference"),
    ],
)
async def test_a_bad_labelled_file_is_refused_with_line_and_field(
    tmp_path: Path, text: str, where: str, field: str
) -> None:
    (tmp_path / "set.jsonl").write_text(text)
    async with scripted(STRICT, lambda body: "", tmp_path) as (_, binding, _):
        with pytest.raises(LabelledError) as caught:
            read_labelled(tmp_path / "set.jsonl", binding.rubric)
    assert caught.value.where.endswith(where)
    assert caught.value.field == field
