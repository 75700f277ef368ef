"""What an environment says its rows are clustered by counts in every interval of the reward: the run's, a comparison's,
a report's.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gavel.envs.statistics import compute_mean, encode_names, find_cluster
from gavel.envs.types import Digests, EnvironmentInfo, Outcome, Result, Reward, Timing, Transcript
from gavel.envs.vera_mh.config import VeraMhConfig
from gavel.launch.commands.compare import describe_intervals
from gavel.launch.comparing.paired import compare_arms, group_by_cluster, make_arm
from gavel.launch.comparing.runs import find_clusters
from gavel.launch.report.entry import make_entry
from gavel.launch.report.overview import _choose_clusters, _count_labels
from gavel.launch.rollout.tally import RunTally
from gavel.models.codec import to_plain

PERSONAS = [f"p{number}" for number in range(20)]
SCORES = np.random.default_rng(3).random(20)


def result(persona: str, simulator: str, rollout: int, value: float, *, told: bool = True) -> Result:
    return Result(
        f"{persona}/{simulator}",
        "sha256:0",
        rollout,
        1,
        "graded",
        Transcript(),
        Outcome("best" if value > 0.5 else "high", (), {"persona": persona}),
        Reward(value, {}),
        (),
        Timing(0.0, 0.0, 0.0, 0.0),
        Digests("sha256:0", {}),
        {"persona": persona} if told else {},
    )


def results(rollouts: int, shift: float = 0.0, **options: Any) -> list[Result]:
    return [
        result(persona, simulator, rollout, float(score) * (1 - shift), **options)
        for persona, score in zip(PERSONAS, SCORES, strict=True)
        for simulator in ("a", "b")
        for rollout in range(rollouts)
    ]


class Personas:
    info = EnvironmentInfo(clusters="persona")

    def summarize(self, rows: Any) -> Any:
        return SimpleNamespace(metrics={}, tables={})


def run_interval(rollouts: int, **options: Any) -> tuple[float, float]:
    rows = results(rollouts, **options)
    task = SimpleNamespace
    planned = [
        SimpleNamespace(key=(row.task_id, row.rollout_index), task=task(task_id=row.task_id), task_digest="x")
        for row in rows
    ]
    tally = RunTally(planned)  # type: ignore[arg-type]
    for row in rows:
        tally.add_row(row)
    found = tally.compute_metrics(Personas(), SimpleNamespace(bounds=(0.0, 1.0))).reward  # type: ignore[arg-type]
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


def test_vera_mh_clusters_by_persona_and_others_by_task() -> None:
    assert VeraMhConfig().info.clusters == "persona"
    assert EnvironmentInfo().clusters is None
    assert find_clusters({"name": "vera_mh"}) == "persona"
    assert find_clusters({"name": "abstention"}) is None
    assert find_clusters({"name": "of_nobody"}) is None


@pytest.mark.parametrize("told", [True, False])  # by the task's metadata, or by the outcome's details alone
def test_more_rollouts_and_simulators_of_the_same_personas_do_not_narrow_the_runs_interval(told: bool) -> None:
    by_persona = compute_mean([float(score) for score in SCORES], encode_names(PERSONAS), bounds=(0.0, 1.0))
    assert by_persona is not None
    for rollouts in (1, 4):
        assert run_interval(rollouts, told=told) == pytest.approx((by_persona.low, by_persona.high), abs=1e-9)


def test_a_comparison_counts_personas_and_not_their_conversations() -> None:
    found = [
        compare_arms(
            [
                make_arm("a", results(k), 40 * k, (0.0, 1.0), "persona"),
                make_arm("b", results(k, 0.5), 40 * k, (0.0, 1.0), "persona"),
            ]
        )
        for k in (1, 4)
    ]
    first, again = (one.differences[0].metric for one in found)
    assert (first.n, first) == (20, again)
    assert describe_intervals(found[0]) == "95 % intervals over clusters of tasks, by persona (bootstrap)"
    alone = make_arm("a", results(1), 40), make_arm("b", results(1, 0.5), 40)
    tasks = compare_arms(alone).differences[0].metric
    assert tasks.n == 40
    assert tasks.value == pytest.approx(first.value)
    assert first.high is not None and first.low is not None and tasks.high is not None and tasks.low is not None  # noqa: PT018
    assert first.high - first.low > 1.2 * (tasks.high - tasks.low)
    assert all(item.p is None for item in found[0].differences), "McNemar's test takes tasks that are not alike"


def test_clusters_of_unequal_size_keep_the_mean_of_the_tasks() -> None:
    values = group_by_cluster(np.array([0.0, 1.0, 1.0, 0.5]), encode_names(["x", "x", "x", "y"]))
    assert values.mean() == pytest.approx(0.625)
    assert len(values) == 2
    same = np.array([0.25, 0.5])
    assert group_by_cluster(same, encode_names("xy")) is same


def test_a_report_counts_personas_too() -> None:
    by = _choose_clusters(SimpleNamespace(env_options={"name": "vera_mh"}))  # type: ignore[arg-type]
    shares = []
    for rollouts in (1, 4):
        rows = [{**to_plain(row), "receipts": []} for row in results(rollouts)]
        entries = [make_entry(number, 1, row, ("results.jsonl", 0)) for number, row in enumerate(rows)]
        assert {by(entry) for entry in entries} == set(PERSONAS)
        shares.append([(share.metric.low, share.metric.high) for share in _count_labels(entries, by)])
    assert shares[0] == [pytest.approx(pair) for pair in shares[1]]


def test_a_row_without_the_field_is_its_own_task() -> None:
    assert find_cluster(result("p", "a", 0, 1.0), "topic") == "p/a"
    assert find_cluster(result("p", "a", 0, 1.0), None) == "p/a"
    assert find_cluster(result("p", "a", 0, 1.0), "persona") == "p"
