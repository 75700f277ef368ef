"""How far the members of a panel agree, over stored outcomes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gavel.envs.panel_metrics import summarize_panels
from gavel.envs.panels import PanelVotes, describe_panel
from gavel.envs.types import Digests, Outcome, Result, Reward, Timing, Transcript
from gavel.judges.types import Grade, JudgeFailure
from gavel.models.failures import FailureKind


def make_result(task: str, votes: Mapping[str, Mapping[str, str]], combine: str = "majority") -> Result:
    details = {"panels": {"x": {"combine": combine, "labels": ["good", "bad"], "votes": votes}}}
    outcome = Outcome("good", (), details)
    reward, timing, digests = Reward(1.0, {}), Timing(0.0, 0.0, 0.0, 0.0), Digests("", {})
    return Result(task, "sha256:0", 0, 1, "graded", Transcript(), outcome, reward, (), timing, digests, {})


def test_the_metric_counts_what_both_said_rows_without_a_verdict_too_and_a_cascade_only_who_was_asked() -> None:
    pairs = ["gg"] * 20 + ["gb"] * 5 + ["bg"] * 10 + ["bb"] * 15
    names = {"g": "good", "b": "bad"}
    rows = [
        make_result(str(place), {"verdict": {"a": names[pair[0]], "b": names[pair[1]]}})
        for place, pair in enumerate(pairs)
    ]
    rows += [make_result("alone", {"verdict": {"a": "good"}})]
    found = summarize_panels(rows)
    assert found["panel/x/a~b/kappa"].value == pytest.approx(0.4)
    assert found["panel/x/a~b/ac1"].value == pytest.approx(0.205 / 0.505)
    assert (found["panel/x/a~b/agreement"].value, found["panel/x/a~b/agreement"].n) == (0.7, 50)
    assert found["panel/x/b/answered"].value == pytest.approx(50 / 51)
    doubted = [{"verdict": {"a": "good"}}, {"verdict": {"a": "bad", "b": "good"}}]
    cascade = summarize_panels(make_result(str(place), votes, "cascade") for place, votes in enumerate(doubted))
    shares = {name: metric.value for name, metric in cascade.items()}
    assert shares == {"panel/x/a/answered": 1.0, "panel/x/b/answered": 0.5}


def test_votes_are_kept_by_the_names_of_what_was_asked_about_and_a_single_judge_leaves_none() -> None:
    def say(votes: Mapping[str, Mapping[str, str]]) -> Grade:
        panel = {"combine": "majority", "labels": ["yes", "no"], "votes": votes}
        return Grade("yes", 1.0, "", "majority", "", {"panel": panel}, ())

    kept = PanelVotes()
    kept.add("x", say({"": {"a": "yes", "b": "no"}}), {"1": "uid-7"})  # one question among several
    kept.add("x", say({"1": {"a": "yes"}, "2": {"b": "no"}, "3": {"a": "no"}}), {"1": "c1", "2": "c2"})
    kept.add("x", say({"1": {"b": "yes"}}), {"1": "c1"})  # a criterion asked again, alone
    failed = JudgeFailure(FailureKind.PANEL_SPLIT, "they differ")
    failed.panel = {"combine": "majority", "labels": ["yes", "no"], "votes": {"": {"a": "no"}}}
    kept.add("y", failed)
    found = kept.make_details()["panels"]
    assert found["x"]["votes"] == {"uid-7": {"a": "yes", "b": "no"}, "c1": {"a": "yes", "b": "yes"}, "c2": {"b": "no"}}
    assert found["y"]["votes"] == {"verdict": {"a": "no"}}
    assert describe_panel("x", Grade("yes", 1.0, "", "exact", "", {}, ())) == {}
    assert describe_panel("x", JudgeFailure(FailureKind.JUDGE_FAILED, "away")) == {}
