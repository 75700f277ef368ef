"""The YAML a NeMo-RL run is started with, what is found wrong with one, and the wrapper entrypoint."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from tests.envs.interfaces.nemo_rl_support import ROOT, make_run, overrides, render_alone, serving, write_tasks
from tests.support.runs import Done

from gavel.envs.interfaces.nemo_gym import SEARCH_DIR
from gavel.envs.interfaces.nemo_rl.config import read_config
from gavel.envs.interfaces.nemo_rl.modes import refuse_mode
from gavel.envs.types import TaskError
from gavel.launch.training.nemo_rl.config import KINDS
from gavel.launch.training.nemo_rl.gym import prepare_gym
from gavel.launch.training.nemo_rl.main import read_yaml, resolve_config
from gavel.launch.training.nemo_rl.preflight import list_findings
from gavel.launch.training.preflight import list_new_findings
from gavel.models.calls.transport import list_unset_variables
from gavel.models.errors import ConfigError, locate_error
from gavel.models.service import Service

BASE = """
grpo: {num_prompts_per_step: 1, max_rollout_turns: 1, async_grpo: {enabled: false}, adv_estimator: {name: grpo}}
policy:
  model_name: nobody
  tokenizer: {name: "${policy.model_name}"}
  max_total_sequence_length: 512
  twice: ${mul:${policy.max_total_sequence_length}, 2}
  generation: {max_new_tokens: "${policy.max_total_sequence_length}", vllm_cfg: {async_engine: false}}
data: {train: {dataset_name: math}, default: {env_name: math}, shuffle: true}
env: {math: {num_workers: 8}}
checkpointing: {enabled: true, checkpoint_dir: results, metric_name: "val:accuracy"}
logger: {log_dir: logs, wandb: {project: x}}
cluster: {gpus_per_node: 1, num_nodes: 1}
"""


def checkout(path: Path, script: str = "") -> Path:
    """A folder that looks like NeMo-RL's: exemplars, one of which builds on the other, and scripts."""
    for name in (*(one.exemplar for one in KINDS.values()), *(one.script for one in KINDS.values())):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(script)
    (path / KINDS["grpo"].exemplar).write_text(BASE)
    above = Path(KINDS["grpo"].exemplar).name
    (path / KINDS["single_controller"].exemplar).write_text(
        f"defaults: {above}\ngrpo: {{async_grpo: null}}\nlogger: {{_override_: true, log_dir: other}}\n"
    )
    return path


def emitted(
    tmp_path: Path, env: str = "abstention", url: str = "http://127.0.0.1:9/v1", **changes: Any
) -> dict[str, Any]:
    """The emitted YAML, read."""
    tasks = write_tasks(tmp_path / f"{env}.jsonl", env, 2)
    root = changes.pop("root", None) or checkout(tmp_path / "nemo")
    validation = changes.pop("validation", None)
    run = make_run(tmp_path / "run", nemo_rl_root=str(root), model="org/model", **changes)
    text = render_alone(run, overrides(env, url), tasks, validation)
    read = yaml.safe_load(text)
    assert isinstance(read, dict)
    return read


def test_the_yaml_is_resolved_self_contained_and_holds_what_the_actor_needs(tmp_path: Path) -> None:
    config = emitted(tmp_path, max_total_tokens=2048, prompts_per_step=4, generations_per_prompt=8)
    assert "defaults" not in config
    assert "${" not in yaml.safe_dump(config)
    assert config["policy"]["twice"] == 4096
    assert config["policy"]["tokenizer"]["name"] == "org/model"
    assert config["policy"]["train_global_batch_size"] == 32
    assert list(config["env"]) == ["gavel_abstention"]
    assert config["data"]["default"] is None
    assert config["data"]["train"]["env_name"] == "gavel_abstention"
    run = tmp_path / "run"
    assert config["checkpointing"]["checkpoint_dir"] == str(run / "checkpoints")
    assert config["logger"]["log_dir"] == str(run / "logs")
    actor = read_config(config["env"]["gavel_abstention"])
    assert actor.ledger == str(run / "ledger")
    assert list(actor.parts.services) == ["general"]  # not the policy's
    assert actor.make_service_key("general") == "judge"  # as the user wrote it
    assert actor.make_service_key("another") == "parts.services.another"


def test_a_conversations_replies_fit_the_trainers_turns(tmp_path: Path) -> None:
    config = emitted(tmp_path, "vera_mh")
    assert config["grpo"]["max_rollout_turns"] == 2  # four utterances
    assert config["data"]["train"]["multi_turn"] is True
    assert set(config["env"]["gavel_vera_mh"]["parts"]["services"]) == {"general", "simulator"}


def test_the_exemplar_of_single_controller_is_built_as_nemo_rl_builds_it(tmp_path: Path) -> None:
    config = emitted(tmp_path, kind="single_controller")
    assert config["grpo"]["async_grpo"] is None
    assert set(config["logger"]) == {"log_dir"}  # _override_ replaced the section
    assert config["policy"]["generation"]["vllm_cfg"]["async_engine"] is True
    with pytest.raises(ConfigError, match="SingleController has no validation"):
        emitted(tmp_path, kind="single_controller", validation="x.jsonl")


def test_an_asynchronous_training_gets_what_nemo_rl_demands_of_it(tmp_path: Path) -> None:
    config = emitted(tmp_path, kind="grpo_async", gpus_per_node=8)
    assert config["grpo"]["async_grpo"]["enabled"] is True
    assert config["loss_fn"]["use_importance_sampling_correction"] is True
    generation = config["policy"]["generation"]
    assert generation["vllm_cfg"]["async_engine"] is True
    assert generation["colocated"] == {"enabled": False, "resources": {"gpus_per_node": 4, "num_nodes": 1}}
    assert refuse_mode(config, "grpo_async") == []
    two = emitted(tmp_path, kind="grpo_async", gpus_per_node=8, nodes=4)["policy"]["generation"]["colocated"]
    assert two["resources"] == {"gpus_per_node": 8, "num_nodes": 2}
    own = {"policy.generation.colocated": {"enabled": False, "resources": {"gpus_per_node": 2, "num_nodes": 1}}}
    chosen = emitted(tmp_path, kind="grpo_async", gpus_per_node=8, overrides=own)["policy"]["generation"]["colocated"]
    assert chosen["resources"]["gpus_per_node"] == 2


def test_an_override_is_a_key_of_the_exemplar_or_says_that_it_is_new(tmp_path: Path) -> None:
    config = emitted(tmp_path, overrides={"grpo": {"num_prompts_per_step": 7}, "+policy.fresh": {"a": 1}})
    assert config["grpo"]["num_prompts_per_step"] == 7
    assert config["policy"]["fresh"] == {"a": 1}
    with pytest.raises(ConfigError, match=r"grpo\.num_prompt_per_step[\s\S]*did you mean `num_prompts_per_step`"):
        emitted(tmp_path, overrides={"grpo.num_prompt_per_step": 7})


def test_a_missing_checkout_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"trainer\.nemo_rl_root: there is no NeMo-RL here"):
        emitted(tmp_path, root=tmp_path / "nowhere")


def test_no_secret_is_in_the_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "hunter2hunter2")
    run = make_run(tmp_path / "run", nemo_rl_root=str(checkout(tmp_path / "nemo")), model="m")
    words = [*overrides("abstention", "http://127.0.0.1:9/v1"), "judge.api_key_env=SOME_KEY"]
    text = render_alone(run, words, write_tasks(tmp_path / "t", "abstention", 1))
    assert "SOME_KEY" in text
    assert "hunter2" not in text


def test_a_config_that_fits_has_no_findings(tmp_path: Path) -> None:
    with serving(model="judge-abstention") as server:
        assert list_findings(emitted(tmp_path, url=server.base_url)) == []


def break_it(config: dict[str, Any], tmp_path: Path) -> None:
    """Six things wrong with a VERA-MH run."""
    config["grpo"]["max_rollout_turns"] = 1
    config["data_plane"] = {"enabled": True}
    config["data"]["train"] = [
        {**config["data"]["train"], "multi_turn": True},
        {**config["data"]["train"], "data_path": str(tmp_path / "missing.jsonl")},
        {**config["data"]["train"], "env_name": "gavel_unknown"},
    ]
    config["cluster"]["num_nodes"] = 2
    config["env"]["gavel_vera_mh"]["parts"]["services"]["simulator"]["api_key_env"] = "NO_SUCH_VARIABLE"


EXPECTED = (
    "grpo.max_rollout_turns: 1, and env.gavel_vera_mh takes up to 2 replies",
    "data_plane.enabled",
    "missing.jsonl",
    "there is no environment 'gavel_unknown'",
    "may land on any of 2 nodes",
    "the variable NO_SUCH_VARIABLE is not set",
    "cannot be reached",
)


async def test_everything_wrong_is_said_at_once_before_anything_is_started(tmp_path: Path) -> None:
    config = emitted(tmp_path, "vera_mh")
    break_it(config, tmp_path)
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(config))
    begun = time.monotonic()
    done = await entrypoint("--config", str(path))
    assert time.monotonic() - begun < 10
    assert done.code == 2
    for expected in EXPECTED:
        assert expected in done.err


def test_a_judge_that_serves_another_model_or_refuses_is_found(tmp_path: Path) -> None:
    with serving(model="another") as server:
        (found,) = list_findings(emitted(tmp_path, url=server.base_url))
    assert "does not serve judge-abstention; it serves another" in str(found)


@pytest.mark.parametrize("key", ["data_path", "env"])
def test_a_dataset_that_lacks_a_key_is_found(key: str, tmp_path: Path) -> None:
    config = emitted(tmp_path)
    del config["data"]["train"][key]
    assert [*map(str, list_findings(config, probe=False))] == [f"data.train[0].{key}: this value is missing"]


def test_a_ledger_that_cannot_be_written_or_is_another_actors_is_found(tmp_path: Path) -> None:
    config = emitted(tmp_path)
    (tmp_path / "file").write_text("")
    config["env"]["gavel_abstention"]["ledger"] = str(tmp_path / "file" / "ledger")
    assert any("ledger: Not a directory" in str(found) for found in list_findings(config, probe=False))
    config["env"]["gavel_abstention"]["ledger"] = str(tmp_path / "ledger")
    config["env"]["gavel_again"] = config["env"]["gavel_abstention"]
    (found,) = list_findings(config, probe=False)
    assert "env.gavel_again.ledger: env.gavel_abstention writes the same files" in str(found)


def test_bad_targets_and_unbound_verifiers_are_found(tmp_path: Path) -> None:
    config = emitted(tmp_path)
    path = Path(config["data"]["train"]["data_path"])
    path.write_text(path.read_text().replace('"reference"', '"referenz"'))
    assert any("target.reference" in str(found) for found in list_findings(config, probe=False)), list_findings(
        config, probe=False
    )
    write_tasks(path, "abstention", 1)
    path.write_text(path.read_text().replace("nemo_abstention_v1/abstention", "nemo_abstention_v1/other"))
    assert any(
        "verifier nemo_abstention_v1/other: there is no such binding" in str(found)
        for found in list_findings(config, probe=False)
    )


@pytest.mark.parametrize(
    ("text", "why"), [(None, "cannot be read"), ("{", "not YAML"), ("a: 1", "does not say what gavel needs")]
)
async def test_a_file_that_is_no_config_of_ours_is_refused(text: str | None, why: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    if text is not None:
        path.write_text(text)
    done = await entrypoint("--config", str(path))
    assert (done.code, why in done.err) == (2, True)


async def test_a_config_by_hand_is_resolved_on_top_of_what_it_names(tmp_path: Path) -> None:
    """The ten lines of docs/nemo_rl.md, word for word but for the places."""
    root = checkout(tmp_path / "nemo", "import sys; print(open(sys.argv[2]).read())")
    write_tasks(tmp_path / "tasks.jsonl", "abstention", 2)
    text = re.search(
        r"```yaml\n(defaults:.*?)```", Path(__file__).parents[2].joinpath("docs/nemo_rl.md").read_text(), re.DOTALL
    )
    assert text is not None
    with serving(model="my-judge") as server:
        places = {"/path/to/RL": str(root), "/path/to/": f"{tmp_path}/", "http://judge-host:9000/v1": server.base_url}
        own = text[1]
        for place, real in places.items():
            own = own.replace(place, real)
        (tmp_path / "mine.yaml").write_text(own)
        done = await entrypoint("--config", str(tmp_path / "mine.yaml"), "--check")
    assert done.code == 0, done.err
    config = read_yaml(tmp_path / "mine.yaml")
    assert config["policy"]["tokenizer"]["name"] == "nobody"
    copy = yaml.safe_load(resolve_config(config, tmp_path / "mine.yaml").read_text())
    assert copy == config
    assert "defaults" not in copy


def test_a_training_by_nemo_gym_names_its_agents_and_lays_out_what_gym_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tmp_path / "image" / "responses_api_models" / "vllm_model" / ".venv"
    image.mkdir(parents=True)
    monkeypatch.setenv("NEMO_GYM_VENV_DIR", str(tmp_path / "image"))
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", "/mine")
    for kind in ("gym", "gym_async"):
        config = emitted(tmp_path, kind=kind, gpus_per_node=2)
        assert list_findings(config, probe=False, places=False) == []
        assert KINDS[kind].script == "examples/nemo_gym/run_grpo_nemo_gym.py"
        assert (config["grpo"]["async_grpo"]["enabled"] is True) == (kind == "gym_async")
        assert config["grpo"]["max_val_samples"] is None
        assert config["policy"]["generation"]["vllm_cfg"]["expose_http_server"] is True
        assert config["env"]["should_use_nemo_gym"] is True
        assert config["data"]["train"]["agent"] == "gavel_abstention_agent"
    agent = config["env"]["nemo_gym"]["gavel_abstention_agent"]["responses_api_agents"]["gavel_agent"]
    prepare_gym(config)
    prepare_gym(config)
    assert orjson.loads(Path(agent["gavel"]).read_bytes()) == config["env"]["gavel_abstention"]
    assert os.environ["NEMO_GYM_EXTRA_ROOTS"].split(os.pathsep) == [str(SEARCH_DIR), "/mine"]
    assert (SEARCH_DIR / "responses_api_agents" / "gavel_agent" / agent["entrypoint"]).is_file()
    venvs = Path(config["env"]["nemo_gym"]["uv_venv_dir"])
    python = venvs / "responses_api_agents" / "gavel_agent" / ".venv" / "bin" / "python"
    said = subprocess.run([python, "-c", "import sys, gavel; print(sys.prefix)"], capture_output=True, text=True)
    assert said.stdout.strip() == sys.prefix
    assert (venvs / "responses_api_models" / "vllm_model" / ".venv").resolve() == image


def test_what_does_not_fit_between_rows_and_agents_is_found(tmp_path: Path) -> None:
    config = emitted(tmp_path, kind="gym", check_workers=2)
    (found,) = list_findings(config, probe=False, places=False)
    assert found.field == "env.gavel_abstention.check_workers"
    config["env"]["gavel_abstention"]["check_workers"] = 0
    del config["env"]["nemo_gym"]["gavel_abstention_agent"]
    (found,) = list_findings(config, probe=False, places=False)
    assert (found.field, found.allowed) == ("data.train[0].agent", "gavel_abstention_agent")
    native = emitted(tmp_path)
    native["data"]["train"]["agent"] = "gavel_abstention_agent"
    (found,) = list_findings(native, probe=False, places=False)
    assert (found.field, found.allowed) == ("data.train[0].agent", "null")
    config = emitted(tmp_path, kind="gym", overrides={"env": {"should_mask_flagged_samples": False}})
    (found,) = list_findings(config, probe=False, places=False)
    assert found.field == "env.should_mask_flagged_samples"


@pytest.mark.parametrize(
    ("env", "refused"), [("abstention", False), ("instruction_following", True), ("vera_mh", True)]
)
def test_gdpo_on_a_reward_of_one_component_is_found_before_a_gpu_is_taken(
    env: str, refused: bool, tmp_path: Path
) -> None:
    config = emitted(tmp_path, env, overrides={"grpo": {"adv_estimator": {"name": "gdpo"}}})
    found = list_findings(config, probe=False, places=False)
    assert [one.field for one in found] == ["grpo.adv_estimator.name"] * refused
    # Beside another environment, a step has components of both.
    config["env"]["gavel_other"] = {**config["env"][f"gavel_{env}"], "name": "other"}
    assert "grpo.adv_estimator.name" not in [one.field for one in list_findings(config, probe=False, places=False)]


SCRIPT = """
import sys, ray
from pathlib import Path
from nemo_rl.algorithms.grpo import grpo_train, run_multi_turn_rollout, validate
from nemo_rl.environments.utils import ENV_REGISTRY
from nemo_rl.distributed.ray_actor_environment_registry import get_actor_python_env
from nemo_rl.utils.config import load_config
assert run_multi_turn_rollout.__module__.startswith("gavel"), run_multi_turn_rollout
assert validate.__module__.startswith("gavel"), validate
fqn = ENV_REGISTRY["gavel_abstention"]["actor_class_fqn"]
assert get_actor_python_env(fqn) == sys.executable
assert not ray.is_initialized()
config = load_config(sys.argv[2])
Path(config.gavel.run_dir, "ran").write_text(Path.cwd().name)
"""


ASYNC = f"""{SCRIPT}
from nemo_rl.algorithms.async_utils import AsyncTrajectoryCollector
assert AsyncTrajectoryCollector.__ray_metadata__.class_name == "GavelCollector"
"""


@pytest.mark.skipif(not ROOT, reason="NEMO_RL_ROOT names no checkout of NVIDIA-NeMo/RL")
@pytest.mark.parametrize(("kind", "script"), [("grpo", SCRIPT), ("grpo_async", ASYNC)])
async def test_the_stock_script_runs_registered_and_hooked(kind: str, script: str, tmp_path: Path) -> None:
    root = checkout(tmp_path / "nemo", script)
    (root / "nemo_rl").symlink_to(Path(ROOT, "nemo_rl"))
    # This interpreter may be older than NeMo-RL wants.
    (tmp_path / "sitecustomize.py").write_text(
        "import typing, typing_extensions\ntyping.TypedDict = typing_extensions.TypedDict\n"
    )
    with serving(model="judge-abstention") as server:
        config = emitted(tmp_path, url=server.base_url, root=root, kind=kind, gpus_per_node=2)
        path = tmp_path / "run" / "nemo_rl.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(config))
        done = await entrypoint("--config", str(path), before=str(tmp_path))
    assert done.code == 0, done.err
    assert (tmp_path / "run" / "ran").read_text() == "nemo"


async def entrypoint(*words: str, before: str = "") -> Done:
    """Run the wrapper as a process of its own."""
    paths = [part for part in (before, os.environ.get("PYTHONPATH", "")) if part]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gavel.launch.nemo_rl_main",
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode is not None
    return Done(process.returncode, out.decode(), err.decode())


@pytest.mark.parametrize(("value", "unset"), [(None, True), ("", True), (" \n", True), ("k", False)])
def test_a_variable_without_a_value_is_not_set_for_the_preflight_as_for_the_call(
    value: str | None, unset: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GAVEL_TEST_FIRST", "GAVEL_TEST_SECOND", "GAVEL_TEST_HEADER"):
        monkeypatch.delenv(name, raising=False)
    if value is not None:
        monkeypatch.setenv("GAVEL_TEST_SECOND", value)
        monkeypatch.setenv("GAVEL_TEST_HEADER", value)
    keys = ("GAVEL_TEST_FIRST", "GAVEL_TEST_SECOND")
    service = Service(
        "external", "m", base_url="http://x/v1", api_key_env=keys, header_env={"X-A": "GAVEL_TEST_HEADER"}
    )
    assert list_unset_variables(service) == (["GAVEL_TEST_FIRST", "GAVEL_TEST_HEADER"] if unset else [])


def test_what_is_wrong_with_a_rendered_config_is_told_only_where_it_was_not_found_before() -> None:
    row = TaskError("this field is missing", where="tasks.jsonl:3", field="target.reference")
    told = [ConfigError("bad", field="env.x", found="1"), row]
    again = [locate_error(row, "data.train[0]"), ConfigError("bad", field="env.x", found="1")]
    new = [ConfigError("bad", field="env.x", found="2"), ConfigError("no such task", field="data.train[1].env")]
    assert list_new_findings(told, [*again, *new], tasks_known=False) == new
    assert list_new_findings(told, [*again, *new], tasks_known=True) == new[:1]
    assert (
        str(locate_error(row, "data.train[0]"))
        == "data.train[0]: tasks.jsonl:3: target.reference: this field is missing"
    )
