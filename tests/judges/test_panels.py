"""Panels and cascades: what several verdicts come to, who is asked, and what is refused before anybody is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.rubric_files import write_rubric

from gavel.judges.assets import AssetStore
from gavel.judges.bindings import bind_rubrics
from gavel.judges.calibration.calibrate import calibrate_panel
from gavel.judges.calibration.cascades import split_clusters
from gavel.judges.calibration.labelled import LabelledItem, LabelledSet
from gavel.judges.calibration.statistics import compute_ac1, compute_kappa
from gavel.judges.certificate import (
    CertificateError,
    Qualification,
    list_required,
    require_certificate,
    write_certificate,
)
from gavel.judges.judge import BoundJudges
from gavel.judges.panels import PANEL, PanelRule, ask_panel
from gavel.judges.probing.probe import CheckRow, ProbeReport
from gavel.judges.rubrics.table import make_rubric
from gavel.judges.types import BindingConfig, CascadeConfig, Grade, JudgeFailure, JudgeQuery, Rubric, RubricConfig
from gavel.models.codec import decode
from gavel.models.errors import ConfigError
from gavel.models.failures import FailureKind
from gavel.models.service import Service
from gavel.models.types import Completion, Receipt, Reply

SCORES = {"good": 1.0, "fair": 0.5, "bad": 0.0}


@pytest.fixture
def rubric(tmp_path: Path) -> Rubric:
    return make_rubric(RubricConfig(file=str(write_rubric(tmp_path))), AssetStore(tmp_path, offline=True))


def make_service(model: str) -> Service:
    return decode(Service, {"mode": "external", "base_url": "http://127.0.0.1:9/v1", "model": model})


SERVICES = {name: make_service(f"model-{name}") for name in ("general", "a", "b", "c", "d")}


def say(label: str | None, kind: FailureKind = FailureKind.TRANSPORT_TIMEOUT, score: float | None = None) -> Any:
    """Return a member's verdict, or its failure for None."""
    if label is None:
        return JudgeFailure(kind, "away")
    return Grade(label, SCORES[label] if score is None else score, f"it is {label}", "exact", label, {}, ())


def number(**verdicts: str) -> Grade:
    """Return a verdict on several criteria: ``c1="good"`` is that on the first."""
    said = {name.removeprefix("c"): label for name, label in verdicts.items()}
    return Grade(next(iter(said.values())), 1.0, "", "exact", "raw", {"verdicts": said, "reasons": {}}, ())


class Members:
    """Members that say this, and who was asked."""

    def __init__(self, **said: Any) -> None:
        self.said = {name: list(one) if isinstance(one, list) else [one] for name, one in said.items()}
        self.asked: list[str] = []

    def ask(self, rule: PanelRule, rubric: Rubric) -> Grade:
        async def speak(name: str, query: JudgeQuery) -> Grade:
            self.asked.append(name)
            said = self.said[name][min(query.sample // 500_000, len(self.said[name]) - 1)]
            if isinstance(said, JudgeFailure):
                raise said
            assert isinstance(said, Grade)
            return said

        ask = {name: (lambda query, name=name: speak(name, query)) for name in self.said}
        return asyncio.run(ask_panel(rule, rubric, JudgeQuery("p", {}), ask))


def panel(combine: Any, quorum: int, members: Sequence[str] = ("a", "b", "c"), **more: Any) -> PanelRule:
    return PanelRule(tuple(members), combine, quorum, **more)


@pytest.mark.parametrize(
    ("combine", "quorum", "labels", "label", "score"),
    [
        ("majority", 2, ("good", "good", "bad"), "good", 1.0),
        ("majority", 2, ("good", None, "good"), "good", 1.0),
        ("majority", 1, (None, None, "fair"), "fair", 0.5),
        ("unanimous", 3, ("bad", "bad", "bad"), "bad", 0.0),
        ("unanimous", 2, ("bad", None, "bad"), "bad", 0.0),
        ("mean", 2, ("good", "good", "bad"), "fair", 2 / 3),  # 2/3 lies nearer to 0.5 than to 1
        ("mean", 2, ("good", "fair", None), "good", 0.75),  # between two labels: the higher
        ("first", 1, ("fair", "bad", "bad"), "fair", 0.5),
        ("first", 1, (None, "bad", "good"), "bad", 0.0),
    ],
)
def test_verdicts_become_one(
    combine: Any, quorum: int, labels: Sequence[str | None], label: str, score: float, rubric: Rubric
) -> None:
    grade = Members(**dict(zip("abc", map(say, labels), strict=True))).ask(panel(combine, quorum), rubric)
    assert (grade.label, grade.score) == (label, pytest.approx(score))
    heard = {name: one for name, one in zip("abc", labels, strict=True) if one is not None}
    if combine != "first":
        assert grade.details[PANEL]["votes"] == {"": heard}


@pytest.mark.parametrize(
    ("combine", "quorum", "labels", "kind"),
    [
        ("majority", 2, ("good", "bad", "fair"), FailureKind.PANEL_SPLIT),
        ("majority", 2, ("good", "bad", None), FailureKind.PANEL_SPLIT),
        ("majority", 2, ("good", None, None), FailureKind.TRANSPORT_TIMEOUT),
        ("unanimous", 3, ("good", "good", "bad"), FailureKind.PANEL_SPLIT),
        ("unanimous", 3, ("good", "good", None), FailureKind.TRANSPORT_TIMEOUT),
        ("mean", 2, ("good", None, None), FailureKind.TRANSPORT_TIMEOUT),
        ("first", 1, (None, None, None), FailureKind.TRANSPORT_TIMEOUT),
    ],
)
def test_too_few_or_split_is_no_verdict_and_keeps_what_was_said(
    combine: Any, quorum: int, labels: Sequence[str | None], kind: FailureKind, rubric: Rubric
) -> None:
    with pytest.raises(JudgeFailure) as caught:
        Members(**dict(zip("abc", map(say, labels), strict=True))).ask(panel(combine, quorum), rubric)
    assert caught.value.kind is kind
    assert caught.value.panel is not None
    heard = {name: one for name, one in zip("abc", labels, strict=True) if one is not None}
    assert caught.value.panel["votes"].get("", {}) == heard


def test_a_member_that_may_yet_answer_names_the_failure_and_one_we_stopped_stops_the_panel(rubric: Rubric) -> None:
    overflow = say(None, FailureKind.CONTEXT_OVERFLOW)
    with pytest.raises(JudgeFailure) as caught:
        Members(a=overflow, b=say(None), c=say("good")).ask(panel("majority", 2), rubric)
    assert caught.value.kind is FailureKind.TRANSPORT_TIMEOUT  # a later attempt may have its verdict
    with pytest.raises(JudgeFailure) as caught:
        Members(a=say("good"), b=say("good"), c=say(None, FailureKind.CANCELLED)).ask(panel("majority", 2), rubric)
    assert caught.value.kind is FailureKind.CANCELLED  # a budget that ended is no opinion


def test_a_number_counts_as_it_is_said_and_the_half_it_lies_in_as_its_label(tmp_path: Path) -> None:
    labels = {"low": 0, "high": 10}
    controls = [
        {"question": "q", "candidate": str(place), "expected": ("low", "high")[place % 2]} for place in range(8)
    ]
    form = write_rubric(tmp_path, reply={"reader": "score", "verdict": "points"}, labels=labels, controls=controls)
    scored = make_rubric(RubricConfig(file=str(form)), AssetStore(tmp_path, offline=True))
    said = [Grade(label, score, "", "exact", "", {}, ()) for label, score in (("low", 0.2), ("high", 0.6), ("high", 1))]
    members = dict(zip("abc", said, strict=True))
    grade = Members(**members).ask(panel("majority", 2), scored)
    assert (grade.label, grade.score) == ("high", pytest.approx(0.8))
    grade = Members(**members).ask(panel("mean", 2), scored)
    assert (grade.label, grade.score) == ("high", pytest.approx(0.6))


def test_of_several_criteria_each_is_voted_on_and_a_split_one_is_left_out(rubric: Rubric) -> None:
    members = Members(
        a=number(c1="good", c2="bad", c3="good"), b=number(c1="good", c2="good", c3="fair"), c=number(c2="bad")
    )
    grade = members.ask(panel("majority", 2), rubric)
    assert grade.details["verdicts"] == {"1": "good", "2": "bad"}
    assert grade.details[PANEL]["votes"]["3"] == {"a": "good", "b": "fair"}


def test_who_is_asked() -> None:
    for rule, said, asked in (
        (panel("first", 1), {"a": say("good"), "b": say("bad"), "c": say("bad")}, "a"),
        (panel("first", 1), {"a": say(None), "b": say("bad"), "c": say("bad")}, "ab"),
        (panel("majority", 2), {"a": say("good"), "b": say("good"), "c": say("bad")}, "abc"),
    ):
        members = Members(**said)
        members.ask(rule, PLAIN)
        assert "".join(members.asked) == asked


class Plain:
    """A rubric of labels without scores."""

    labels = ("good", "fair", "bad")
    profile = "acme/plain"


PLAIN: Any = Plain()


@pytest.mark.parametrize(
    ("first", "samples", "second", "label", "asked"),
    [
        (["good"], 1, "bad", "good", "a"),  # trusted
        (["fair"], 1, "bad", "bad", "ab"),  # not trusted
        ([None], 1, "bad", "bad", "ab"),  # no verdict
        (["good", "good"], 2, "bad", "good", "aa"),
        (["good", "bad"], 2, "bad", "bad", "aab"),  # another sample disagrees
        (["good", None], 2, "fair", "fair", "aab"),
        (["fair", "fair"], 2, "bad", "bad", "aab"),
    ],
)
def test_a_cascade_asks_the_second_only_where_the_first_is_not_to_be_trusted(
    first: list[str | None], samples: int, second: str, label: str, asked: str
) -> None:
    members = Members(a=[say(one) for one in first], b=say(second))
    rule = panel("cascade", 1, "ab", trusted=("good",), samples=samples)
    assert members.ask(rule, PLAIN).label == label
    assert "".join(members.asked) == asked


def test_a_cascade_whose_second_judge_fails_has_no_verdict_of_the_first(rubric: Rubric) -> None:
    members = Members(a=say("fair"), b=say(None, FailureKind.PROVIDER_UNAVAILABLE))
    with pytest.raises(JudgeFailure) as caught:
        members.ask(panel("cascade", 1, "ab", trusted=("good",)), rubric)
    assert caught.value.kind is FailureKind.PROVIDER_UNAVAILABLE


def bind(tmp_path: Path, config: BindingConfig, profile: str | None = None, **services: Service) -> Any:
    rubric = RubricConfig(profile=profile) if profile else RubricConfig(file=str(write_rubric(tmp_path)))
    return bind_rubrics({"r": rubric}, {"x": config}, {**SERVICES, **services}, AssetStore(tmp_path, offline=True))["x"]


@pytest.mark.parametrize(
    ("config", "field", "said"),
    [
        (BindingConfig("a", "r", combine="majority"), "combine", "no effect with a single judge"),
        (BindingConfig("a", "r", quorum=1), "quorum", "no effect with a single judge"),
        (BindingConfig("a", "r", cascade=CascadeConfig()), "cascade", "no effect with a single judge"),
        (BindingConfig(("a",), "r"), "judge", "at least two judges"),
        (BindingConfig((), "r"), "judge", "at least two judges"),
        (BindingConfig(("a", "a"), "r"), "judge", "count twice"),
        (BindingConfig(("a", "twin"), "r"), "judge", "count twice"),
        (BindingConfig(("a", "zz"), "r"), "judge", "no such service"),
        (BindingConfig("a,b", "r"), "judge", r"a list: judging.bindings.x.judge=\[a,b\]"),
        (BindingConfig(("judge", "a"), "r"), "judge", "`judge` is called `general`"),
        (BindingConfig(("a", "b"), "r", quorum=3), "quorum", "out of range"),
        (BindingConfig(("a", "b"), "r", quorum=0), "quorum", "out of range"),
        (BindingConfig(("a", "b"), "r", combine="first", quorum=1), "quorum", "no effect with combine=first"),
        (BindingConfig(("a", "b"), "r", combine="mean", cascade=CascadeConfig()), "combine", "no effect beside"),
        (BindingConfig(("a", "b"), "r", quorum=1, cascade=CascadeConfig()), "quorum", "no effect beside"),
        (BindingConfig(("a", "b", "c"), "r", cascade=CascadeConfig()), "judge", "two judges"),
        (BindingConfig(("a", "b"), "r", cascade=CascadeConfig(("great",))), "cascade.trusted", "no such label"),
    ],
)
def test_a_panel_that_cannot_work_is_refused_by_its_key(
    config: BindingConfig, field: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        bind(tmp_path, config, twin=make_service("model-a"))
    assert caught.value.field == f"judging.bindings.x.{field}"


def test_rubrics_that_cannot_be_combined_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="each answer decides which question comes next"):
        bind(tmp_path, BindingConfig(("a", "b"), "r"), "gavel/vera-mh-small")
    with pytest.raises(ConfigError, match="no scores"):
        bind(tmp_path, BindingConfig(("a", "b"), "r", combine="mean"), "gavel/qa-abstention-v1")
    assert bind(tmp_path, BindingConfig(("a", "b"), "r"), "gavel/qa-abstention-v1").rule.quorum == 2


@pytest.mark.parametrize(
    ("combine", "members", "quorum"), [(None, 2, 2), (None, 3, 2), (None, 4, 3), ("unanimous", 3, 3)]
)
def test_without_a_quorum_more_than_half_must_answer_and_of_unanimous_ones_all(
    combine: Any, members: int, quorum: int, tmp_path: Path
) -> None:
    assert bind(tmp_path, BindingConfig(tuple("abcd"[:members]), "r", combine=combine)).rule.quorum == quorum


def test_a_member_qualifies_as_itself_and_the_panel_needs_all_of_them_and_its_own_controls(tmp_path: Path) -> None:
    made = bind(tmp_path, BindingConfig(("a", "b"), "r"))
    alone = bind(tmp_path, BindingConfig("a", "r"))
    assert made.members[0].digest == alone.digest
    assert made.digest != bind(tmp_path, BindingConfig(("a", "b"), "r", combine="unanimous")).digest
    assert made.digest != bind(tmp_path, BindingConfig(("a", "b", "c"), "r")).digest
    folder = tmp_path / "certificates"

    def certify(binding: Any, *, passed: bool) -> None:
        row = CheckRow("control", "c", ("good",), "good" if passed else "bad", passed)
        write_certificate(folder, binding, probe=ProbeReport(binding.name, (row,), None, None, None, None))

    for part in (*made.members, made):
        with pytest.raises(CertificateError, match="never probed"):
            require_certificate(folder, made, Qualification())
        certify(part, passed=True)
    assert require_certificate(folder, made, Qualification()) is not None
    certify(made.members[1], passed=False)
    with pytest.raises(CertificateError, match=r"x\[b\] does not qualify"):
        require_certificate(folder, made, Qualification())
    cascade = bind(tmp_path, BindingConfig(("a", "b"), "r", cascade=CascadeConfig(("good",))))
    assert [one.name for one, _ in list_required(cascade, Qualification())] == ["x[b]", "x"]


class Scripted:
    """Judges by a table: what each says of a candidate."""

    def __init__(self, said: Mapping[str, Mapping[str, str | None]]) -> None:
        self.said, self.calls = said, 0

    async def grade(self, query: JudgeQuery) -> Grade:
        self.calls += 1
        member = query.binding.partition("[")[2].removesuffix("]")
        verdict = say(self.said[member][query.slots["candidate"]])
        if isinstance(verdict, JudgeFailure):
            raise verdict
        assert isinstance(verdict, Grade)
        return verdict

    def rubric(self, binding: str) -> Rubric:
        raise AssertionError(binding)


def make_labelled(truths: Sequence[str]) -> LabelledSet:
    items = tuple(
        LabelledItem({"question": f"q{place}", "reference": "", "candidate": str(place)}, label, f"q{place}", {})
        for place, label in enumerate(truths)
    )
    return LabelledSet(items, "sha256:0")


def test_a_calibration_chooses_on_one_half_and_its_figures_on_the_other_are_those_worked_by_hand(
    tmp_path: Path,
) -> None:
    """Of 8 items the cheap judge calls 4 good and is right, and 4 bad, 2 of them rightly; the strong one errs once."""
    size = 400
    half = split_clusters([f"q{place}" for place in range(size)])
    chosen_on = [place for place in range(size) if f"q{place}" in half]
    rest = [place for place in range(size) if f"q{place}" not in half]
    assert (len(chosen_on), len(rest)) == (200, 200)
    truth: dict[int, str] = {}
    cheap: dict[str, str | None] = {}
    strong: dict[str, str | None] = {}
    for places in (chosen_on, rest):
        for order, place in enumerate(places):
            kind = order % 8
            truth[place] = "good" if kind < 6 else "bad"  # of its 4 verdicts "bad" (4 to 7) two are right
            cheap[str(place)] = "good" if kind < 4 else "bad"
            strong[str(place)] = "bad" if kind in (0, 6, 7) else "good"  # wrong on kind 0 alone
    judge = Scripted({"a": cheap, "b": strong})
    made = bind(tmp_path, BindingConfig(("a", "b"), "r", cascade=CascadeConfig(min_precision=0.9)))
    labelled = make_labelled([truth[place] for place in range(size)])
    first, second, whole = asyncio.run(calibrate_panel(made, judge, labelled, draws=50))
    report = whole.cascade
    assert report is not None
    assert (report.trusted, report.chosen_on, report.measured_on) == (("good",), 200, 200)
    assert (report.precisions["good"].value, report.precisions["bad"].value) == (1.0, 0.5)
    assert report.saved.value == 0.5  # the 4 of 8 that the cheap judge calls good
    assert report.agreement.value == 0.875  # they differ on kind 0, where the strong judge is wrong
    assert report.accuracy.value == 1.0
    assert report.second_accuracy.value == 0.875
    assert judge.calls == 2 * size
    assert (first.accuracy.value, second.accuracy.value, whole.accuracy.value) == (0.75, 0.875, 1.0)


def test_a_label_whose_precision_is_not_certain_enough_is_not_trusted_and_a_wrong_choice_does_not_qualify(
    tmp_path: Path,
) -> None:
    truths = ["good", "bad"] * 10
    said: dict[str, str | None] = {str(place): label for place, label in enumerate(truths)}
    judge = Scripted({"a": said, "b": said})
    made = bind(tmp_path, BindingConfig(("a", "b"), "r", cascade=CascadeConfig()))
    *_, whole = asyncio.run(calibrate_panel(made, judge, make_labelled(truths), draws=50))
    assert whole.cascade is not None
    assert whole.cascade.trusted == ()  # always right, of a handful
    assert whole.cascade.saved.value == 0.0
    told = bind(tmp_path, BindingConfig(("a", "b"), "r", cascade=CascadeConfig(("good",))))
    *_, whole = asyncio.run(calibrate_panel(told, judge, make_labelled(truths), draws=50))
    row = CheckRow("control", "c", ("good",), "good", passed=True)
    folder = tmp_path / "certificates"
    for one in (told.members[1], told):
        write_certificate(folder, one, probe=ProbeReport(one.name, (row,), None, None, None, None))
    with pytest.raises(CertificateError, match="never measured"):
        require_certificate(folder, told, Qualification())
    write_certificate(folder, told, calibration=whole)
    with pytest.raises(CertificateError, match=r"trusts good, whose certified precision is 0\.\d+"):
        require_certificate(folder, told, Qualification())


def test_a_cascade_of_two_samples_saves_only_where_both_agree(tmp_path: Path) -> None:
    made = bind(tmp_path, BindingConfig(("a", "b"), "r", cascade=CascadeConfig(("good",), samples=2)))

    class Wavering(Scripted):
        async def grade(self, query: JudgeQuery) -> Grade:
            if query.sample and query.binding == "x[a]" and int(query.slots["candidate"]) % 2:
                return replace(await super().grade(query), label="bad")
            return await super().grade(query)

    good: dict[str, str | None] = {str(place): "good" for place in range(40)}
    *_, whole = asyncio.run(
        calibrate_panel(made, Wavering({"a": good, "b": good}), make_labelled(["good"] * 40), draws=20)
    )
    assert whole.cascade is not None
    odd = [place for place in range(40) if place % 2]
    rest = [place for place in range(40) if f"q{place}" not in split_clusters([f"q{one}" for one in range(40)])]
    assert whole.cascade.saved.value == pytest.approx(1 - len(set(odd) & set(rest)) / len(rest))


@pytest.mark.parametrize(
    ("table", "kappa", "ac1"),
    [
        # p_o = 0.7; rows 25/25, columns 30/20: p_e = 0.5 -> kappa 0.4; q = (0.55, 0.45): p_e = 0.495 -> 0.205/0.505
        ([[20, 5], [10, 15]], 0.4, 0.205 / 0.505),
        # skewed: p_o = 0.92; p_e = 0.94*0.94 + 0.06*0.06 = 0.8872 -> kappa 0.0328/0.1128; AC1 p_e = 2*0.94*0.06
        ([[90, 4], [4, 2]], (0.92 - 0.8872) / 0.1128, (0.92 - 0.1128) / (1 - 0.1128)),
        # three labels: p_o = 0.6, shares 1/3 each: p_e of kappa 1/3, of AC1 3 * (1/3)(2/3) / 2 = 1/3
        ([[2, 1, 0], [0, 2, 1], [1, 0, 2]], 0.5, 0.5),
    ],
)
def test_agreement_equals_what_was_worked_by_hand(table: Any, kappa: float, ac1: float) -> None:
    counts = np.array(table)
    assert float(compute_kappa(counts)) == pytest.approx(kappa)
    assert float(compute_ac1(counts)) == pytest.approx(ac1)


def test_a_panel_asks_each_service_once_and_keeps_every_receipt(tmp_path: Path) -> None:
    asked: list[str] = []

    class Model:
        def __init__(self, name: str) -> None:
            self.name = name

        async def complete(self, request: Any) -> Completion:
            asked.append(self.name)
            text = '{"why": "so", "grade": "good"}'
            receipt = Receipt(self.name, "judge", self.name, "m", "sha256:0")
            return Completion(Reply(text, "stop", "m"), receipt)

    made = bind(tmp_path, BindingConfig(("a", "b", "c"), "r"))
    judge = BoundJudges({"x": made}, Model)  # type: ignore[arg-type]
    slots = {"question": "q", "reference": "r", "candidate": "c"}
    grade = asyncio.run(judge.grade(JudgeQuery("x", slots)))
    assert (sorted(asked), [receipt.call_id for receipt in grade.receipts]) == (["a", "b", "c"], ["a", "b", "c"])
    assert grade.reasoning == "a: so\nb: so\nc: so"
