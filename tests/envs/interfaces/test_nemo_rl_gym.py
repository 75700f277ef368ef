"""Trainings whose rollouts NeMo Gym makes, on the real code of NeMo-RL and of NeMo Gym: see ``nemo_rl_gym``."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.envs.interfaces.nemo_rl_gym import GYM, train_gym, train_gym_async
from tests.envs.interfaces.nemo_rl_support import ABSTAINED, LOST, OPENING, ROOT, answer_all, serving, write_tasks
from tests.envs.vera_mh import support as vera
from tests.support.runs import rows

if not (ROOT and GYM):
    pytest.skip("NEMO_RL_ROOT and an importable nemo_gym are needed together", allow_module_level=True)

from tests.envs.interfaces.nemo_rl_async import Script, _read_row, read_number, sort_wanted
from tests.envs.interfaces.nemo_rl_exact import wanted_advantages
from tests.envs.interfaces.nemo_rl_harness import make_tokenizer
from tests.envs.interfaces.nemo_rl_train import R, W, trainer_process

pytestmark = pytest.mark.filterwarnings("ignore")
NAMES = {"a": "abstention", "b": "instruction_following", "c": "vera_mh"}
FIRST = (R, W, R, f"{R} {LOST}", W, R, W, R)
HALF, GONE = f"no {ABSTAINED}", f"{R} {LOST}"
VALUES = {R: Fraction(1), W: Fraction(0), HALF: Fraction(1, 2)}
TABLE = [[R, R, W, GONE], [R, GONE, GONE, GONE], [R, W, HALF, GONE], [R, R, R, GONE]]
HALVES = ("reward=tiered", "reward.abstain=0.5", "reward.incorrect=0")
TALKS = ("yes", R, "yes", LOST)


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    with trainer_process():
        yield


def words(tmp_path: Path, url: str) -> list[str]:
    """A training in all three environments, with a task of each."""
    found = [
        f"judge.base_url={url}",
        "judge.model=judge-all",
        "judge.attempts=1",
        "failure.max_ungraded_fraction=1.0",
        "services.simulator.mode=external",
        f"services.simulator.base_url={url}",
        "services.simulator.model=simulator-model",
        "services.simulator.attempts=1",
    ]
    for name, env in NAMES.items():
        path = write_tasks(tmp_path / f"{env}.jsonl", env, 1)
        found += [f"env@envs.{name}={env}", f"envs.{name}.tasks.path={path}"]
    own = [vera.SMALL, "env.simulators=[{service: simulator}]", "env.max_turns=4", "env.parse_retries=0"]
    return [
        *found,
        "envs.a.rubrics.abstention.profile=gavel/qa-abstention-v1",
        "envs.a.weight=0.5",
        *(f"envs.c.{word}" for word in own),
    ]


def make_say() -> Any:
    """Replies to questions and to conversations, each in its own order."""
    asked, talked = iter(FIRST * 9), iter(TALKS * 9)

    def say(prompt: str, _: int) -> str:
        if OPENING not in prompt:
            return next(asked)
        return next(talked) if prompt.count("<|im_start|>assistant") == 1 else "yes"

    return say


@pytest.mark.timeout(600)
def test_three_environments_in_one_step_are_played_graded_and_told_apart(tmp_path: Path) -> None:
    with serving(reply=answer_all) as server:
        done = train_gym(
            tmp_path, server.base_url, make_say(), tasks=3, generations=4, words=words(tmp_path, server.base_url)
        )
    (batch,) = done.batches
    found, ledger = done.metrics["train", 1], done.folder / "ledger"
    results = {name: [row["result"] for row in rows(ledger, f"{name}.rows.jsonl")] for name in NAMES}
    assert {name: len(made) for name, made in results.items()} == {"a": 4, "b": 4, "c": 4}
    rewards = {
        name: [one["reward"]["value"] for one in made if one["status"] == "graded"] for name, made in results.items()
    }
    wanted: list[list[float]] = [
        [
            *wanted_advantages([Fraction(value) for value in values], None, leave_one_out=True, normalize=True),
            *[0.0] * (4 - len(values)),
        ]
        for values in rewards.values()
    ]
    given = [float(one) for one in batch["advantages"][:, 0]]
    groups = [sorted(given[place : place + 4]) for place in (0, 4, 8)]
    assert [one for group in groups for one in group] == pytest.approx(
        [one for group in wanted for one in sorted(group)], abs=1e-5
    )
    lost = {name: 4 - len(values) for name, values in rewards.items()}
    assert lost["c"] == 1
    assert sum(lost.values()) == found["judge/ungraded"] == (batch["sample_mask"] == 0).sum() == 2
    assert sorted(set(batch["sample_mask"][:4].tolist())) in ([0.0, 0.5], [0.5])
    for name, values in rewards.items():
        assert found[f"env/{name}/samples"] == 4
        assert found[f"env/{name}/ungraded_rate"] == lost[name] / 4
        assert found[f"env/{name}/reward"] == pytest.approx(sum(values) / len(values))
        assert found[f"gavel_{name}_agent/reward/mean"] == pytest.approx(sum(values) / len(values))
    whole = [value for values in rewards.values() for value in values]
    assert found["reward"] == found["total_reward/mean"] == pytest.approx(sum(whole) / len(whole))
    assert found["env/a/accuracy"] == pytest.approx(sum(rewards["a"]) / len(rewards["a"]))
    # Each conversation was played in turns: the persona's words lie between two replies, and only these are trained on.
    assert {len(one["transcript"]["messages"]) for one in results["c"] if one["status"] == "graded"} == {5}
    steps = rows(ledger, "steps.jsonl")
    uids = {row["uid"]: row["verdict"] for name in NAMES for row in rows(ledger, f"{name}.rows.jsonl")}
    assert {row["uid"] for row in steps} == set(uids)
    assert all((row["weight"] == 0) == (uids[row["uid"]]["failure"] is not None) for row in steps)
    assert {one.body["model"] for one in server.requests} == {"judge-all", "simulator-model"}


def check_table(step: list[Any]) -> None:
    """Every group of a step has the advantages and weights of its graded samples alone."""
    assert len(step) == 16
    for number in {row.task for row in step}:
        group = [row for row in step if row.task == number]
        found = sorted((row.said, row.advantage) for row in group)
        wanted = sort_wanted(TABLE[number % 4], VALUES, leave_one_out=True, normalize=True)
        assert [said for said, _ in found] == [said for said, _ in wanted]
        assert [one for _, one in found] == pytest.approx([one for _, one in wanted], abs=1e-5)
        assert {row.weight for row in group if row.said == GONE} == {0.0}
        assert {row.weight for row in group if row.said != GONE} == {1.0}


def check_figures(found: dict[str, Any]) -> None:
    """The figures of a step of the whole table are of its ten graded samples."""
    mean = sum([1, 1, 0, 1, 1, 0, 0.5, 1, 1, 1]) / 10
    assert found["reward"] == found["reward/graded_mean"] == pytest.approx(mean)
    assert (found["judge/samples"], found["judge/graded"], found["judge/ungraded"]) == (16, 10, 6)
    assert found["judge/ungraded/provider_unavailable"] == 6
    assert found["env/abstention/accuracy"] == pytest.approx(7 / 10)
    assert found["advantages/largest"] <= found["advantages/bound"] * 1.001
    for name in ("total_reward", "gavel_abstention_agent/reward"):
        ends = (found[f"{name}/mean"], found[f"{name}/max"], found[f"{name}/min"])
        assert ends == (pytest.approx(mean), 1, 0)


def check_ledger(folder: Path, steps: int) -> None:
    """``steps.jsonl`` holds what each step has used, with the weights of the verdicts in the ledger."""
    uids = {row["uid"]: row["verdict"] for row in rows(folder / "ledger", "abstention.rows.jsonl")}
    train = [row for row in rows(folder / "ledger", "steps.jsonl") if row["split"] == "train"]
    assert [row["step"] for row in train] == [one for step in range(1, steps + 1) for one in [step] * 16]
    assert all(row["weight"] == float(uids[row["uid"]]["failure"] is None) for row in train)


@pytest.mark.timeout(600)
def test_lost_calls_leave_no_trace_in_a_synchronous_step_and_its_validation(tmp_path: Path) -> None:
    with serving() as server:
        done = train_gym(
            tmp_path, server.base_url, Script(TABLE), tasks=4, generations=4, validation=4, more=HALVES,
            grpo={"val_at_start": True, "val_period": 5},
        )  # fmt: skip
    (batch,) = done.batches
    step = [_read_row(batch, place, make_tokenizer("chatml")) for place in range(batch.size)]
    check_table(step)
    found = done.metrics["train", 1]
    check_figures(found)
    check_ledger(done.folder, 1)
    # The first line of the four tasks: all right.
    assert done.metrics["validation", 0]["accuracy"] == 1.0


@pytest.mark.timeout(600)
def test_lost_calls_leave_no_trace_in_asynchronous_steps(tmp_path: Path) -> None:
    with serving() as server:
        done = train_gym_async(
            tmp_path, server.base_url, Script(TABLE), tasks=24, prompts=4, generations=4, steps=2, validation=4,
            more=HALVES, grpo={"val_at_start": True, "val_period": 5},
        )  # fmt: skip
    for number, step in enumerate(done.steps, 1):
        check_table(step)
        check_figures(done.metrics["train", number])
    assert len(done.steps) == 2
    check_ledger(done.folder, 2)
    assert done.metrics["validation", 0]["accuracy"] == 1.0


@pytest.mark.timeout(600)
def test_three_environments_train_asynchronously_by_nemo_gym(tmp_path: Path) -> None:
    more = write_tasks(tmp_path / "more.jsonl", "abstention", 12)
    ahead = [
        "env@envs.z=abstention",
        f"envs.z.tasks.path={more}",
        "envs.z.rubrics.abstention.profile=gavel/qa-abstention-v1",
    ]
    with serving(reply=answer_all) as server:
        done = train_gym_async(
            tmp_path, server.base_url, make_say(), tasks=3, generations=4,
            words=[*words(tmp_path, server.base_url), *ahead],
        )  # fmt: skip
    (step,) = done.steps
    found, ledger = done.metrics["train", 1], done.folder / "ledger"
    assert {name: found[f"env/{name}/samples"] for name in NAMES} == {"a": 4, "b": 4, "c": 4}
    used = {row["uid"]: row["weight"] for row in rows(ledger, "steps.jsonl")}
    assert sorted(used.values()) == sorted(row.weight for row in step)
    wanted: list[float] = []
    for name in NAMES:
        verdicts = [row["verdict"] for row in rows(ledger, f"{name}.rows.jsonl") if row["uid"] in used]
        values = [one["reward"] for one in verdicts if one["failure"] is None]
        assert found[f"env/{name}/reward"] == pytest.approx(sum(values) / len(values))
        assert found[f"env/{name}/ungraded_rate"] == 1 - len(values) / 4
        group = [Fraction(value) for value in values]
        wanted += wanted_advantages(group, None, leave_one_out=True, normalize=True) + [0.0] * (4 - len(values))
    assert sorted(row.advantage for row in step) == pytest.approx(sorted(wanted), abs=1e-5)


@pytest.mark.timeout(600)
def test_dynamic_sampling_keeps_groups_whole_of_which_replies_were_never_drawn(tmp_path: Path) -> None:
    """Groups of four: one spread with two replies that the engine could not draw, one all wrong, two more spread."""
    asked: dict[int, int] = {}

    def say(prompt: str, _: int) -> str | int:
        number = read_number(prompt)
        place = asked[number] = asked.get(number, -1) + 1
        if number == 0 and place >= 2:
            return 500
        return [R, W][place % 2] if number != 1 else W

    with serving() as server:
        done = train_gym(
            tmp_path, server.base_url, say, tasks=4, prompts=2, generations=4,
            grpo={"use_dynamic_sampling": True, "dynamic_sampling_max_gen_batches": 4, "batch_multiplier": 1},
        )  # fmt: skip
    (batch,) = done.batches
    step = [_read_row(batch, place, make_tokenizer("chatml")) for place in range(batch.size)]
    assert [row.task for row in step] == [0] * 4 + [2] * 4
    assert [row.weight for row in step[:4]].count(0.0) == 2
    assert sorted(row.advantage for row in step[:4]) == pytest.approx([-1.0, 0.0, 0.0, 1.0], abs=1e-5)
    assert all(row.weight == 1.0 for row in step[4:])


def kill_agent(folder: Path) -> None:
    """Kill the process that serves this training's agent, as a lack of memory would."""
    for one in psutil.process_iter(["cmdline"]):
        words = one.info["cmdline"] or []
        if "--serve" in words and str(folder) in one.environ().get("NEMO_GYM_CONFIG_DICT", ""):
            one.kill()


@pytest.mark.timeout(600)
def test_a_step_outlives_its_agent_and_replies_that_the_engine_could_not_draw(tmp_path: Path) -> None:
    killed: list[int] = []

    def say(prompt: str, count: int) -> str | int:
        number = read_number(prompt)
        if number == 1:
            return 500
        if count == 6 and not killed:
            killed.append(count)
            kill_agent(tmp_path)
        return [R, W][count % 2]

    with serving() as server:
        done = train_gym(tmp_path, server.base_url, say, tasks=2, generations=8)
    (batch,) = done.batches
    found, weights = done.metrics["train", 1], batch["sample_mask"].tolist()
    assert killed
    # The engine's failures are one group of eight, lost as a whole; all of the other was drawn, some of it again.
    assert weights == [*[1.0] * 8, *[0.0] * 8]
    assert (found["judge/graded"], found["judge/ungraded"]) == (8, 8)
    told = {row["uid"]: row["verdict"] for row in rows(done.folder / "ledger", "abstention.rows.jsonl")}
    used = [row["uid"] for row in rows(done.folder / "ledger", "steps.jsonl")]
    assert len(set(used)) == 16
    assert set(used) <= set(told)
    rewards = [told[uid]["reward"] for uid in used[:8]]
    replies = [_read_row(batch, place, make_tokenizer("chatml")).said for place in range(8)]
    assert rewards == [float(said == R) for said in replies], "each reply has the grade of its own words"
