"""The environments on NeMo-RL's own rollout code; needs ``NEMO_RL_ROOT``."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.envs.interfaces.nemo_rl_support import LOST, RIGHT, ROOT, actor_config, overrides, serving, write_tasks
from tests.envs.vera_mh import support as vera
from tests.support.runs import gavel, rows

from gavel.envs.failure_policy import FailurePolicy

if not ROOT:
    pytest.skip("NEMO_RL_ROOT names no checkout of NVIDIA-NeMo/RL", allow_module_level=True)

from tests.envs.interfaces import nemo_rl_harness as harness
from tests.envs.interfaces.nemo_rl_speed import IDEAL, Speed, measure
from tests.envs.interfaces.nemo_rl_tokenizers import FAMILIES, released

from gavel.envs.interfaces.nemo_rl.controller_hooks import install_single_controller
from gavel.envs.interfaces.nemo_rl.driver import Driver, TrainingStopped
from gavel.envs.interfaces.nemo_rl.register import DATASET, register_environments
from gavel.envs.interfaces.nemo_rl.threads import widen_executor
from gavel.models.errors import ConfigError

pytestmark = pytest.mark.filterwarnings("ignore")
ENVS = ("abstention", "instruction_following", "vera_mh")


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    widen_executor()
    with harness.ray_cluster():
        register_environments([f"gavel_{env}" for env in ENVS])
        yield
    asyncio.set_event_loop_policy(None)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return harness.make_tokenizer("chatml")


def create(env: str, url: str, *more: str, **changes: Any) -> Any:
    from nemo_rl.environments.utils import create_env

    return create_env(f"gavel_{env}", actor_config(env, url, *more, **changes))


def driver_for(tokenizer: Any, **options: Any) -> Driver:
    return Driver(harness.policy_section(tokenizer, **options), FailurePolicy(max_ungraded_fraction=1.0))


def said_to(prompt: str) -> str:
    """What the policy says: by the number of the task alone, so that both ways of running it get the same."""
    number = int((re.findall(r"kilometre (\d+) of", prompt) or re.findall(r"sleep\. (\d+)", prompt))[-1])
    return (f"it is {RIGHT}", "it is not", f"who knows {LOST}", f"<think>hm</think>surely {RIGHT}")[number % 4]


async def rewards_of_gavel(env: str, tasks: Path, run: Path) -> dict[str, float | None]:
    """Run ``gavel rollout`` with a policy that says the same; None where a row is ungraded."""

    def policy(body: dict[str, Any]) -> Any:
        from tests.envs.interfaces import nemo_rl_support as support

        if body["model"] == "chatbot-model":
            return said_to("\n".join(str(message["content"]) for message in body["messages"]))
        return support.answer(body)

    with serving() as server:
        server.reply = policy
        done = await gavel("rollout", f"run.dir={run}", f"tasks.path={tasks}", *overrides(env, server.base_url))
    assert done.code in (0, 3), done.err
    graded = {row["task_id"]: row["reward"]["value"] for row in rows(run)}
    errors = rows(run, "errors.jsonl") if (run / "errors.jsonl").exists() else []
    return {**graded, **{row["task_id"]: None for row in errors}}


def rewards_in(batch: Any) -> dict[str, float | None]:
    """The rewards of a rolled out batch by task, None where the sample weighs nothing."""
    found = {}
    for info, reward, weight in zip(
        batch["extra_env_info"], batch["total_reward"], batch["loss_multiplier"], strict=True
    ):
        found[orjson.loads(info["gavel_task"])["task_id"]] = float(reward) if float(weight) else None
    return found


@pytest.mark.parametrize("env", ENVS)
async def test_rewards_equal_those_of_gavel_rollout_on_the_same_replies(
    env: str, tokenizer: Any, tmp_path: Path
) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", env, 4)
    expected = await rewards_of_gavel(env, tasks, tmp_path / "run")
    assert len(expected) == 4
    if env != "vera_mh":
        assert [expected[f"{env}-{number}"] for number in range(4)] == [1.0, 0.0, None, 1.0]
    with serving() as server, harness.hooked(driver_for(tokenizer)):
        handle = create(env, server.base_url)
        for mode in ("sync", "async"):
            batch = harness.batch_of(tasks, env, tokenizer, 1)
            generation = harness.Canned(tokenizer, lambda text, _: said_to(text))
            final, metrics = await asyncio.to_thread(
                harness.roll, mode, generation, batch, tokenizer, {batch["task_name"][0]: handle}, 15
            )
            assert rewards_in(final) == pytest.approx(expected), mode
            graded = [value for value in expected.values() if value is not None]
            assert metrics["reward/graded_mean"] == pytest.approx(sum(graded) / len(graded))
            assert metrics["judge/ungraded_rate"] == pytest.approx(1 - len(graded) / 4)
            assert any(name.startswith(f"env/{env}/") for name in metrics)


@pytest.mark.parametrize("env", ENVS)
def test_single_controller_gets_whole_groups_and_an_infrastructure_failure_for_the_others(
    env: str, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nemo_rl.experience.rollout_manager as manager
    import ray
    from nemo_rl.experience.failures import FailureClass, RolloutInfraFailure, classify_rollout_failure

    monkeypatch.setattr(manager, "AsyncRolloutImpl", manager.AsyncRolloutImpl)
    monkeypatch.setattr(manager, "calculate_rewards", manager.calculate_rewards)
    install_single_controller(harness.policy_section(tokenizer), FailurePolicy(max_ungraded_fraction=1.0))
    batch = harness.batch_of(write_tasks(tmp_path / "tasks.jsonl", env, 3), env, tokenizer, 1)
    with serving() as server:
        handle = create(env, server.base_url)
        made = manager.RolloutManager(
            tokenizer=tokenizer,
            task_to_env={batch["task_name"][0]: handle},
            num_generations_per_prompt=3,
            max_seq_len=2048,
            max_rollout_turns=15,
            policy_generation=harness.Canned(tokenizer, lambda text, _: said_to(text)),
        )
        samples = [
            {key: batch[key][place] for key in ("message_log", "extra_env_info", "task_name", "idx")}
            for place in range(3)
        ]

        @ray.remote
        class Controller:  # a process of its own, as SingleController's: the hooks must travel with the rollouts
            def __init__(self, made: Any) -> None:
                self._made = made

            async def play(self, sample: Any) -> Any:
                record = await self._made.run_rollout(sample)
                done = record.completions
                return (
                    [one.reward for one in done],
                    len({one.env_extras["gavel_uid"] for one in done}),
                    record.rollout_metrics,
                )

        controller = Controller.remote(made)
        rewards, told_apart, metrics = ray.get(controller.play.remote(samples[0]))
        assert (rewards, told_apart) == ([0.5 if env == "vera_mh" else 1.0] * 3, 3)
        assert metrics["judge/graded"] == 3
        if env == "vera_mh":
            return
        with pytest.raises(RolloutInfraFailure) as failed:
            ray.get(controller.play.remote(samples[2]))
        assert classify_rollout_failure(failed.value) is FailureClass.INFRA
        assert "provider_unavailable" in str(failed.value)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_episode_cut_by_the_turn_cap_is_ungraded(mode: str, tokenizer: Any, tmp_path: Path) -> None:
    batch = harness.batch_of(write_tasks(tmp_path / "tasks.jsonl", "vera_mh", 2), "vera_mh", tokenizer, 2)
    with serving() as server, harness.hooked(driver_for(tokenizer)):
        handle = create("vera_mh", server.base_url)
        generation = harness.Canned(tokenizer, lambda *_: "yes")
        final, metrics = harness.roll(mode, generation, batch, tokenizer, {batch["task_name"][0]: handle}, turns=1)
    assert final["loss_multiplier"].tolist() == [0.0] * 4
    assert metrics["judge/ungraded/episode_cut"] == 4
    assert "reward/graded_mean" not in metrics


def test_a_generation_error_that_the_rollout_swallows_leaves_an_ungraded_sample(tokenizer: Any, tmp_path: Path) -> None:
    batch = harness.batch_of(write_tasks(tmp_path / "tasks.jsonl", "abstention", 2), "abstention", tokenizer, 1)
    with serving() as server, harness.hooked(driver_for(tokenizer)):
        handle = create("abstention", server.base_url)
        generation = harness.Canned(tokenizer, lambda _, count: RIGHT if count else RuntimeError("engine died"))
        final, metrics = harness.roll("async", generation, batch, tokenizer, {batch["task_name"][0]: handle})
    assert sorted(final["loss_multiplier"].tolist()) == [0.0, 1.0]
    assert metrics["judge/ungraded/episode_cut"] == 1


def test_too_many_ungraded_samples_stop_the_training_and_say_why(tokenizer: Any, tmp_path: Path) -> None:
    batch = harness.batch_of(write_tasks(tmp_path / "tasks.jsonl", "abstention", 4), "abstention", tokenizer, 2)
    failure = FailurePolicy(max_ungraded_fraction=0.1, window=8, minimum=8)
    with serving() as server, harness.hooked(Driver(harness.policy_section(tokenizer), failure)):
        handle = create("abstention", server.base_url)
        generation = harness.Canned(tokenizer, lambda text, _: said_to(text))
        with pytest.raises(TrainingStopped, match=r"2 of the last 8 rows are ungraded.*max_ungraded_fraction=0\.1"):
            harness.roll("sync", generation, batch, tokenizer, {batch["task_name"][0]: handle})


@pytest.mark.parametrize("name", list(harness.TEMPLATES))
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_reply_cut_at_the_limit_is_truncated_and_one_that_ends_is_not(name: str, mode: str, tmp_path: Path) -> None:
    tokenizer = harness.make_tokenizer(name)
    batch = harness.batch_of(write_tasks(tmp_path / "tasks.jsonl", "abstention", 4), "abstention", tokenizer, 1)
    thinking = "</think>" if name == "prefilled" else ""
    # Whole; cut in the answer; a thinking block that never closes, and (pre-filled) one that closes though it never
    # opened.
    replies = [
        f"{thinking}it is {RIGHT}",
        (f"{thinking}it is {RIGHT}" + " so" * 60, False),
        "<think>well",
        f"well{thinking} {RIGHT}",
    ]
    with serving() as server, harness.hooked(driver_for(tokenizer, max_new=40)):
        handle = create("abstention", server.base_url, ledger=str(tmp_path))
        generation = harness.Canned(
            tokenizer, lambda text, _: replies[int(re.findall(r"kilometre (\d+)", text)[-1])], limit=40
        )
        final, _ = harness.roll(mode, generation, batch, tokenizer, {batch["task_name"][0]: handle})
    assert final["loss_multiplier"].tolist() == [1.0] * 4  # the policy's own faults are graded
    labels = {
        row["result"]["task_id"]: row["result"]["outcome"]["label"] for row in rows(tmp_path, "abstention.rows.jsonl")
    }
    assert [labels[f"abstention-{number}"] for number in range(4)] == ["correct", "truncated", "no_answer", "correct"]


@pytest.mark.parametrize("make", [harness.make_tokenizer, released], ids=["ours", "released"])
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_token_stream_of_a_conversation_is_its_chat_template_and_only_replies_are_trained(
    make: Callable[[str], Any], name: str, mode: str, tmp_path: Path
) -> None:
    from nemo_rl.algorithms.grpo import add_grpo_token_loss_masks_and_generation_logprobs

    tokenizer = make(name)
    batch = harness.batch_of(write_tasks(tmp_path / "tasks.jsonl", "vera_mh", 1), "vera_mh", tokenizer, 1)
    with serving() as server, harness.hooked(driver_for(tokenizer)):
        handle = create("vera_mh", server.base_url, "env.max_turns=6")
        generation = harness.Canned(tokenizer, lambda _, count: f"chatbot {count} says\n\n")
        final, _ = harness.roll(mode, generation, batch, tokenizer, {batch["task_name"][0]: handle}, turns=3)
    assert final["loss_multiplier"].tolist() == [1.0]
    log = final["message_log"][0]
    said = [{"role": "system", "content": vera.SYSTEM}, {"role": "user", "content": "Hello, I could not sleep. 0"}]
    for turn in range(3):
        if turn:
            said += [{"role": "user", "content": f"persona {2 * turn}"}]
        rendered = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
        stream = [int(token) for message in log[: 2 * turn + 1] for token in message["token_ids"]]
        if name == "llama3":  # its template trims what a reply ends with; the tokens that were drawn stay
            rendered = re.sub(r"(chatbot \d says)(?=<)", "\\1\n\n", rendered)
        assert stream == tokenizer(rendered, add_special_tokens=False)["input_ids"], turn
        said += [{"role": "assistant", "content": f"chatbot {turn} says\n\n"}]
    assert log[-1]["content"] == ""
    assert len(log[-1]["token_ids"]) == 0
    add_grpo_token_loss_masks_and_generation_logprobs(final["message_log"])
    assert [bool(message["token_loss_mask"].any()) for message in log] == [
        message["role"] == "assistant" for message in log
    ]


@pytest.mark.parametrize(
    ("env", "template", "found"),
    [
        ("abstention", None, "chat template"),
        ("vera_mh", "{% for m in messages %}{{ m.content }}{% endfor %}", "no control token follows a reply"),
        (
            "vera_mh",
            "{% if messages[0].role == 'system' %}{{ raise_exception('no system role here') }}{% endif %}",
            "no system role here",
        ),
    ],
)
def test_a_template_that_cannot_render_the_tasks_is_refused_before_an_actor_is_made(
    env: str, template: str | None, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nemo_rl.data.utils as utils

    monkeypatch.setattr(utils, "create_env", lambda **_: pytest.fail("an actor was made"))
    tokenizer = harness.make_tokenizer("chatml")
    tokenizer.chat_template = template
    entry = {"data_path": str(write_tasks(tmp_path / "tasks.jsonl", env, 2)), "env_name": f"gavel_{env}", "env": env}
    data = {
        "train": {"dataset_name": DATASET, "multi_turn": env == "vera_mh", **entry},
        "validation": None,
        "default": None,
    }
    with harness.hooked(driver_for(tokenizer)), pytest.raises(ConfigError, match=rf"policy\.tokenizer[\s\S]*{found}"):
        utils.setup_response_data(tokenizer, data, {f"gavel_{env}": {}})


def test_a_reply_cut_in_mid_conversation_gets_its_end_token_before_the_next_turn(
    tokenizer: Any, tmp_path: Path
) -> None:
    batch = harness.batch_of(write_tasks(tmp_path / "tasks.jsonl", "vera_mh", 1), "vera_mh", tokenizer, 1)
    with serving() as server, harness.hooked(driver_for(tokenizer, max_new=8)):
        handle = create("vera_mh", server.base_url)
        generation = harness.Canned(
            tokenizer, lambda _, count: "well" if count else ("on and on and on", False), limit=8
        )
        final, _ = harness.roll("sync", generation, batch, tokenizer, {batch["task_name"][0]: handle})
    assert final["message_log"][0][2]["content"].startswith("<|im_end|>\n<|im_start|>user\n")
    assert final["loss_multiplier"].tolist() == [1.0]


def test_an_actor_killed_in_mid_step_repeats_no_answered_call_and_doubles_no_row(
    tokenizer: Any, tmp_path: Path
) -> None:
    import threading

    import ray

    batch = harness.batch_of(write_tasks(tmp_path / "tasks.jsonl", "abstention", 4), "abstention", tokenizer, 4)
    with serving() as server, harness.hooked(driver_for(tokenizer)):
        handle = create("abstention", server.base_url, "judge.max_in_flight=2", ledger=str(tmp_path))
        ray.get(handle.report.remote([]))
        server.latency = 0.2
        answered_at_death: list[int] = []

        def kill() -> None:
            deadline = time.monotonic() + 20
            while sum(server.statuses.values()) < 8 and time.monotonic() < deadline:
                time.sleep(0.01)
            answered_at_death.append(sum(server.statuses.values()))
            ray.kill(handle, no_restart=False)

        killer = threading.Thread(target=kill)
        killer.start()
        generation = harness.Canned(tokenizer, lambda _, count: f"{RIGHT} {count}")
        final, _ = harness.roll("sync", generation, batch, tokenizer, {batch["task_name"][0]: handle})
        killer.join()
    assert final["total_reward"].tolist() == [1.0] * 16
    written = rows(tmp_path, "abstention.rows.jsonl")
    assert len(written) == len({(row["uid"], row["turn"]) for row in written}) == 16
    # Only what was under way at the kill (2 in flight, and one answer at most on its way into the ledger each) is asked
    # again.
    assert answered_at_death[0] >= 8
    assert 16 <= server.count <= 16 + 4


@pytest.mark.parametrize(("mode", "seconds"), [("sync", 2.0), ("async", 3.0)])
def test_256_judgements_of_half_a_second_are_made_at_once(
    mode: str, seconds: float, tokenizer: Any, tmp_path: Path
) -> None:
    batch = harness.batch_of(write_tasks(tmp_path / "tasks.jsonl", "abstention", 8), "abstention", tokenizer, 32)
    with serving(record=False) as server, harness.hooked(driver_for(tokenizer)):
        handle = create("abstention", server.base_url)
        warm = harness.batch_of(tmp_path / "tasks.jsonl", "abstention", tokenizer, 1)
        harness.roll(
            mode, harness.Canned(tokenizer, lambda *_: "warm"), warm, tokenizer, {batch["task_name"][0]: handle}
        )
        server.latency = 0.5
        generation = harness.Canned(tokenizer, lambda _, count: f"{RIGHT} {count}")
        begun = time.perf_counter()
        final, _ = harness.roll(mode, generation, batch, tokenizer, {batch["task_name"][0]: handle})
        took = time.perf_counter() - begun
    assert final["loss_multiplier"].sum() == 256
    assert took < seconds


def test_2048_samples_of_a_step_are_judged_at_512_a_second_in_less_than_a_gigabyte(
    tokenizer: Any, tmp_path: Path
) -> None:
    """The rate counts where a client that only asks comes near the ideal, for others may use this machine; CPU time
    counts always.
    """
    calm: list[Speed] = []
    for step in measure(tmp_path, tokenizer, steps=5):
        assert step.actor_ms < 0.8, step  # half of what 640 a second leave one core
        assert step.driver_ms < 0.4, step
        assert step.peak_mb < 1000, step
        calm += [step] if step.bare > 0.95 * IDEAL else []
        if any(step.judged > 512 for step in calm):
            return
    if not calm:
        pytest.skip(
            f"others use this machine: a client that only asks stays below 95 % of {IDEAL:g}; the last step: {step}"
        )
    pytest.fail(f"too slow: {calm}")


def test_heavy_checks_run_on_ray_workers(tokenizer: Any, tmp_path: Path) -> None:
    import ray

    batch = harness.batch_of(
        write_tasks(tmp_path / "tasks.jsonl", "instruction_following", 2), "instruction_following", tokenizer, 4
    )
    with serving() as server, harness.hooked(driver_for(tokenizer)):
        handle = create("instruction_following", server.base_url, check_workers=2)
        generation = harness.Canned(tokenizer, lambda _, count: RIGHT if count % 2 else "SHOUTED qx1")
        final, _ = harness.roll("sync", generation, batch, tokenizer, {batch["task_name"][0]: handle})
        ray.get(handle.shutdown.remote())
    assert final["total_reward"].tolist() == [0.0, 1.0] * 4
    assert final["loss_multiplier"].tolist() == [1.0] * 8
