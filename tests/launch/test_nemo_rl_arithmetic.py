"""The arithmetic of a launch: what is said of it, what does not add up, and the recipe that a run starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.envs.interfaces.nemo_rl_support import ROOT, task, write_tasks
from tests.launch.test_nemo_rl_launch import checkout, emitted

from gavel.envs.interfaces.nemo_rl.modes import refuse_mode
from gavel.envs.interfaces.nemo_rl.register import DATASET
from gavel.launch.compose.compose import compose_config
from gavel.launch.training.nemo_rl.arithmetic import describe_arithmetic, divide_gpus, find_contradictions
from gavel.launch.training.nemo_rl.config import KINDS
from gavel.launch.training.nemo_rl.preflight import list_findings
from gavel.launch.training.nemo_rl.recipe import find_recipe
from gavel.launch.training.nemo_rl.wrong_values import find_wrong_values
from gavel.launch.training.preflight import check_run
from gavel.launch.training.progress import plan_steps
from gavel.models.errors import ConfigError
from gavel.models.service import Service


def config(
    tmp_path: Path, tasks: int = 12, *, cluster: tuple[int, int] = (1, 1), kind: str = "grpo", **changes: Any
) -> dict[str, Any]:
    """What NeMo-RL is given, as far as its arithmetic goes; ``cluster``: nodes, GPUs of each."""
    path = write_tasks(tmp_path / "tasks.jsonl", "abstention", tasks)
    grpo = {"num_prompts_per_step": 2, "num_generations_per_prompt": 4, "max_num_steps": 6, "max_num_epochs": 1}
    made: dict[str, Any] = {
        "grpo": grpo | changes.pop("grpo", {}),
        "policy": {"train_global_batch_size": 8, "generation": {"colocated": {"enabled": True}}}
        | changes.pop("policy", {}),
        "data": {
            "train": {
                "dataset_name": DATASET,
                "data_path": str(path),
                "env_name": "gavel_abstention",
                "env": "abstention",
            }
        },
        "cluster": {"num_nodes": cluster[0], "gpus_per_node": cluster[1]},
        "gavel": {"kind": kind},
    }
    return made | changes


def apart(gpus: int | None, nodes: int | None) -> dict[str, Any]:
    return {"generation": {"colocated": {"enabled": False, "resources": {"gpus_per_node": gpus, "num_nodes": nodes}}}}


@pytest.mark.parametrize(
    ("changes", "needles"),
    [
        (
            {"grpo": {"num_prompts_per_step": 32}, "policy": {"train_global_batch_size": 128}},
            ("there are 12 tasks", "0 steps"),
        ),
        (
            {"grpo": {"num_prompts_per_step": 13}, "policy": {"train_global_batch_size": 52}},
            ("there are 12 tasks", "of at most 12"),
        ),
        ({"grpo": {"max_num_steps": 1000}}, ("after 6 of 1000 steps", "max_num_epochs=167", "trainer.max_steps=6")),
        ({"grpo": {"max_num_steps": 13, "max_num_epochs": 2}}, ("after 12 of 13 steps", "max_num_epochs=3")),
        (
            {
                "cluster": (4, 8),
                "grpo": {"num_prompts_per_step": 5, "num_generations_per_prompt": 3, "max_num_steps": 2},
                "policy": {"train_global_batch_size": 15},
            },
            ("15 samples do not divide over 32 data-parallel ranks",),
        ),
        ({"cluster": (1, 3)}, ("8 samples do not divide over 3",)),
        ({"policy": {"train_global_batch_size": 6}}, ("8 samples, which is no multiple",)),
        (
            {"cluster": (1, 2), "policy": {"train_global_batch_size": 8, "train_micro_batch_size": 3}},
            ("has 4 samples",),
        ),
        ({"cluster": (1, 8), "policy": {"dtensor_cfg": {"tensor_parallel_size": 3}}}, ("one copy takes 3 GPUs",)),
        (
            {"cluster": (1, 4), "policy": {"megatron_cfg": {"enabled": True, "pipeline_model_parallel_size": 8}}},
            ("one copy takes 8",),
        ),
        (
            {
                "cluster": (4, 8),
                "policy": {"train_global_batch_size": 24, **apart(1, 1)},
                "grpo": {"num_prompts_per_step": 6, "max_num_steps": 2},
            },
            ("1 of the 8 GPUs of 1 node",),
        ),
        ({"cluster": (1, 1), "policy": apart(1, 1)}, ("leave 0 of 1",)),
        ({"cluster": (2, 8), "policy": apart(8, 2)}, ("leave 0 of 16",)),
        (
            {"kind": "single_controller", "async_rl": {"rollout_failure": {"max_consecutive_dropped_prompts": 0}}},
            ("max_consecutive_dropped_prompts: 0",),
        ),
        (
            {"kind": "single_controller", "async_rl": {"rollout_failure": {"max_skipped_prompts": 0}}},
            ("max_skipped_prompts: 0",),
        ),
        (
            {"kind": "grpo_async", "grpo": {"max_num_steps": 4}},
            ("4 asynchronous steps of 2 prompts draw up to 14", "12 tasks", "trainer.max_steps=3, or at least 14"),
        ),
        (
            {"grpo": {"max_num_steps": 3, "async_grpo": {"enabled": True, "max_trajectory_age_steps": 2}}},
            ("draw up to 14", "trainer.max_steps=2"),
        ),
        (
            {
                "kind": "grpo_async",
                "grpo": {"max_num_steps": 2, "max_num_epochs": 9, "num_prompts_per_step": 4},
                "policy": {"train_global_batch_size": 16},
            },
            ("draw up to 20", "fix:     at least 20 tasks"),
        ),
    ],
)
def test_a_launch_that_does_not_add_up_is_told_with_its_numbers(
    changes: dict[str, Any], needles: tuple[str, ...], tmp_path: Path
) -> None:
    found = find_contradictions(config(tmp_path, **changes))
    assert len(found) == 1, found
    for needle in needles:
        assert needle in str(found[0])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"grpo": {"max_num_steps": 1_000_000}},  # NeMo-RL's own: the epochs are meant
        {"grpo": {"max_num_steps": 5}},
        {"grpo": {"max_num_steps": 1000, "max_num_epochs": 167}},
        {"cluster": (1, 8)},
        {"cluster": (2, 8), "policy": {"train_global_batch_size": 8, **apart(8, 1)}},
        {"cluster": (1, 4), "policy": {"train_global_batch_size": 8, **apart(2, None)}},
        {"cluster": (1, 8), "policy": {"train_global_batch_size": 8, "dtensor_cfg": {"tensor_parallel_size": 4}}},
        {"cluster": (1, 1), "policy": {"train_micro_batch_size": 3, "sequence_packing": {"enabled": True}}},
        {"kind": "single_controller", "async_rl": {"rollout_failure": {"max_skipped_prompts": 4}}},
        # Twelve tasks, two a step: three steps, one ahead, one at the end and one that a restart loses.
        {"kind": "grpo_async", "grpo": {"max_num_steps": 3}},
        {"grpo": {"max_num_steps": 2, "async_grpo": {"enabled": True, "max_trajectory_age_steps": 2}}},
    ],
)
def test_a_launch_that_adds_up_has_no_finding(changes: dict[str, Any], tmp_path: Path) -> None:
    assert find_contradictions(config(tmp_path, **changes)) == []


def test_the_arithmetic_is_said(tmp_path: Path) -> None:
    services = {"general": Service(mode="external", base_url="http://h/v1", model="j", max_in_flight=4)}
    lines = dict(describe_arithmetic(config(tmp_path, cluster=(1, 4), policy=apart(2, 1)), services))
    assert lines["a step"] == "2 prompts x 4 replies = 8 samples"
    assert lines["an epoch"] == "12 tasks = 6 steps; at most 1 epochs"
    assert lines["steps"] == "6 of 6"
    assert lines["policy"] == "2 GPUs: 2 ranks of 1 GPUs, 4 samples each"
    assert lines["generation"] == "2 GPUs of its own"
    assert lines["judge"] == "general: 8 calls a step at one a reply, about 4 s (4 at once, 2 s each)"
    assert "judge" not in dict(describe_arithmetic(config(tmp_path), services, judged=False))


def test_gpus_of_generation_on_nodes_of_its_own_are_not_the_policys(tmp_path: Path) -> None:
    found = divide_gpus(config(tmp_path, cluster=(4, 8), policy=apart(8, 1)))
    assert (found.policy, found.generation, found.shared) == (24, 8, False)


WORDS = [
    "env=abstention", "judge=external", "judge.base_url=http://h/v1", "judge.model=j", "qualification.required=false",
    "hygiene_required=false", "tasks.path=pkg:envs/abstention/data/samples.jsonl", "tasks.limit=8", "trainer.prompts_per_step=8",  # noqa: E501
    "rubrics.abstention.profile=gavel/qa-abstention-v1",
]  # fmt: skip


def checked(tmp_path: Path, *words: str) -> Any:
    root = checkout(tmp_path / "nemo")
    return check_run(compose_config("train", [*WORDS, f"trainer.nemo_rl_root={root}", *words]), tmp_path / "run")


@pytest.mark.parametrize(
    ("value", "needle"),
    [
        ("{data: {train: [{dataset_name: x, data_path: y}]}}", "data.train: no entry has dataset_name"),
        ("{data.train: [a, b]}", "data.train: this is no data set\n  found:   a"),
        ("{data: {train: x}}", "data.train: this is no data set\n  found:   x"),
        ("{+data.train.limit.more: 3}", "data.train.limit is no section"),
    ],
)
def test_data_that_is_a_list_is_never_a_traceback(value: str, needle: str, tmp_path: Path) -> None:
    assert needle in "\n".join(map(str, checked(tmp_path, f"trainer.overrides={value}").findings))


WRONG: list[tuple[str, Any]] = [
    ("grpo", [1]),
    ("data", [1]),
    ("env", [1]),
    ("cluster", "x"),
    ("policy", [1]),
    ("policy.generation", [1]),
    ("policy.generation.colocated", 3),
    ("policy.megatron_cfg", [1]),
    ("checkpointing", [1]),
    ("async_rl.rollout_failure", 3),
    ("grpo.max_num_steps", "abc"),
    ("grpo.max_num_steps", None),
    ("grpo.max_num_steps", 0),
    ("grpo.max_num_steps", 2.5),
    ("grpo.max_num_epochs", -1),
    ("grpo.num_prompts_per_step", [1]),
    ("grpo.num_generations_per_prompt", True),
    ("cluster.num_nodes", "two"),
    ("cluster.gpus_per_node", -3),
    ("policy.train_global_batch_size", "x"),
    ("grpo.batch_multiplier", 0),
]


@pytest.mark.parametrize(("key", "value"), WRONG, ids=str)
def test_a_value_of_another_kind_is_a_finding_with_its_key_and_never_a_traceback(key: str, value: Any) -> None:
    config: dict[str, Any] = {"grpo": {"num_prompts_per_step": 2, "num_generations_per_prompt": 2}}
    *above, last = key.split(".")
    section = config
    for name in above:
        section = section.setdefault(name, {})
    section[last] = value
    (said,) = list_findings(config)
    assert str(said).startswith(f"{key}: this value of the trainer's config cannot be read")
    assert describe_arithmetic(config, {}) == find_contradictions(config) == []
    assert plan_steps(config).steps is None


@pytest.mark.parametrize(
    ("word", "key"), [("grpo=[1]", "grpo"), ("env=[1]", "env"), ("grpo.max_num_steps=abc", "grpo.max_num_steps")]
)
def test_a_value_of_another_kind_is_told_by_the_dry_run(word: str, key: str, tmp_path: Path) -> None:
    assert f"{key}: this value of the trainer's config" in "\n".join(
        map(str, checked(tmp_path, f"trainer.overrides.{word}").findings)
    )


@pytest.mark.parametrize(
    ("key", "value"), [("max_num_steps", "1000"), ("max_num_steps", 1e3), ("max_num_epochs", None)]
)
def test_a_value_that_nemo_rl_reads_as_a_number_is_none_of_another_kind(key: str, value: Any) -> None:
    assert find_wrong_values({"grpo": {key: value}}) == []


def test_one_prompt_with_two_targets_is_found_over_files(tmp_path: Path) -> None:
    made = emitted(tmp_path)
    entry = made["data"]["train"]
    row = task("abstention", 1)
    for name, change in (("spaces", "  {}\n"), ("same", "{}")):
        content = change.format(row["messages"][0]["content"])
        other = {**row, "task_id": f"other-{name}", "messages": [{"role": "user", "content": content}]}
        other["target"] = {**row["target"], "reference": "elsewhere"}
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(orjson.dumps(other) + b"\n")
        made["data"]["train"] = [entry, {**entry, "data_path": str(path)}]
        found = "\n".join(map(str, list_findings(made, probe=False, places=False)))
        assert "two tasks have one prompt and different targets" in found, name
        assert "abstention-1 (data.train[0])" in found
        assert f"other-{name} (data.train[1])" in found
    made["env"]["gavel_other"] = made["env"]["gavel_abstention"]
    made["data"]["train"] = [entry, {**entry, "env_name": "gavel_other"}]  # the same file, graded by two environments
    assert "one prompt" not in "\n".join(
        map(str, list_findings(made, probe=False, places=False))
    )  # their groups are kept apart
    made["gavel"]["kind"] = "single_controller"  # but for one trainer
    assert "one prompt and different targets" in "\n".join(map(str, list_findings(made, probe=False, places=False)))
    made["data"]["train"] = [{**entry, "weight": 0.5}]
    assert "data.train[0].weight: 0.5" in "\n".join(map(str, list_findings(made, probe=False, places=False)))
    made["data"]["train"] = [entry, entry]
    assert "one prompt" not in "\n".join(map(str, list_findings(made, probe=False, places=False)))


def test_a_recipe_is_found_by_its_name_and_laid_over(tmp_path: Path) -> None:
    root, exemplar = checkout(tmp_path / "nemo"), KINDS["grpo"].exemplar
    recipes = root / "examples/configs/recipes/llm"
    recipes.mkdir(parents=True)
    (recipes / "grpo-big-8B.yaml").write_text(
        "defaults: ../../grpo_math_1B.yaml\npolicy: {model_name: big/8B, optimizer: null, extra: 7}\n"
    )
    for name in ("grpo-big-8B", "recipes/llm/grpo-big-8B.yaml", str(recipes / "grpo-big-8B.yaml")):
        assert find_recipe(root, exemplar, name) == recipes / "grpo-big-8B.yaml"
    assert find_recipe(root, exemplar, None) == root / exemplar
    with pytest.raises(ConfigError, match=r"grpo-big-8B\.yaml"):
        find_recipe(root, exemplar, "grpo-big-7B")
    made = emitted(tmp_path, root=root, recipe="grpo-big-8B")
    assert made["policy"]["extra"] == 7
    assert made["policy"]["optimizer"] is None
    (recipes / "sft.yaml").write_text("sft: {}\n")
    with pytest.raises(ConfigError, match="no recipe of GRPO"):
        emitted(tmp_path, root=root, recipe="sft")


def test_a_run_has_its_own_name_with_the_loggers(tmp_path: Path) -> None:
    assert emitted(tmp_path)["logger"]["wandb"] == {"project": "x", "name": "run"}


@pytest.mark.skipif(not ROOT, reason="NEMO_RL_ROOT names no checkout of NVIDIA-NeMo/RL")
@pytest.mark.parametrize(
    "recipe",
    [
        "grpo_math_1B",
        "grpo_math_8B",
        "grpo_math_8B_megatron",
        "grpo-qwen2.5-32b-32n8g-fsdp2tp8-actckpt.v3",
        "grpo-llama3.1-8b-instruct-2n8g-fsdp2tp1-noncolocated",
        "grpo-qwen3-30ba3b-8n8g-megatron",
        "dapo-qwen2.5-7b.v2",
    ],
)
def test_recipes_of_nemo_rl_can_be_started_from(recipe: str, tmp_path: Path) -> None:
    made = emitted(tmp_path, root=Path(ROOT), recipe=recipe)
    assert made["policy"]["model_name"]
    assert set(made["env"]) == {"gavel_abstention"}


@pytest.mark.skipif(not ROOT, reason="NEMO_RL_ROOT names no checkout of NVIDIA-NeMo/RL")
@pytest.mark.parametrize(
    "recipe",
    [
        None,
        "grpo_math_8B",
        "grpo-nanov3-30BA3B-4n4g-megatron_async_colocated",
        "grpo-qwen3-30ba3b-10n8g-megatron-cp2-r3-async",
    ],
)
def test_asynchronous_recipes_ask_for_nothing_that_is_refused(recipe: str | None, tmp_path: Path) -> None:
    made = emitted(tmp_path, root=Path(ROOT), recipe=recipe, kind="grpo_async", nodes=2, gpus_per_node=8)
    assert refuse_mode(made, "grpo_async") == []
