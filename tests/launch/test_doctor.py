"""``gavel doctor`` and what it shares with ``--check`` and dry runs: which checkout is there, and whether the hooks fit
it.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import yaml
from tests.envs.interfaces.nemo_rl_support import ROOT, serving
from tests.launch.test_nemo_rl_arithmetic import WORDS
from tests.launch.test_nemo_rl_launch import checkout, emitted

from gavel.envs.interfaces.nemo_rl.contract import ESTIMATORS, NEEDED, TESTED
from gavel.launch.cli.command_line import main
from gavel.launch.compose.compose import compose_config
from gavel.launch.training.nemo_rl.checkout import is_checkout, read_checkout, require_contract
from gavel.launch.training.nemo_rl.interpreter import describe_failures, run_toy_group
from gavel.launch.training.nemo_rl.main import main as entrypoint
from gavel.launch.training.preflight import check_run
from gavel.launch.training.render import make_python_path
from gavel.models.errors import ConfigError

SIX = "class EnvironmentReturn(NamedTuple):\n" + "".join(
    f"    {name}: Any\n"
    for name in ("observations", "metadata", "next_stop_strings", "rewards", "terminateds", "answers")
)


def double(
    path: Path, *, without: str = "", returned: str = SIX, baseline: str = "prompts, rewards, valid_mask"
) -> Path:
    """A checkout with empty code under every name that the hooks take hold of, but for one module or name."""
    root = checkout(path)
    for module, names in NEEDED.items():
        if module == without:
            continue
        file = root.joinpath(*module.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"def {name}(): ...\n" for name in names if f"{module}.{name}" != without))
    estimators = root / "nemo_rl/algorithms/advantage_estimator.py"
    with estimators.open("a") as out:
        out.writelines(f"class {name}: ...\n" for name in (*ESTIMATORS, "StrangeAdvantageEstimator"))
    (root / "nemo_rl/environments").mkdir()
    (root / "nemo_rl/environments/interfaces.py").write_text(returned)
    (root / "nemo_rl/algorithms/utils.py").write_text(f"def calculate_baseline_and_std_per_prompt({baseline}): ...\n")
    return root


def test_a_checkout_that_has_what_the_hooks_take_hold_of_fits(tmp_path: Path) -> None:
    found = read_checkout(double(tmp_path / "RL"))
    require_contract(found)
    with pytest.raises(ConfigError, match="async_grpo_train"):
        require_contract(found, asynchronous=True)
    assert (found.commit, found.tested, found.missing) == (None, False, ())
    assert found.estimators == {
        "grpo": "exact",
        "reinforce_plus_plus": "exact",
        "gdpo": "exact",
        "raw_reward": "refused",
        "gae": "refused",
        "opd": "refused",
        "StrangeAdvantageEstimator": "unknown",
    }
    assert not is_checkout(checkout(tmp_path / "other"))


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"without": "nemo_rl.experience.rollout_manager"}, "nemo_rl.experience.rollout_manager (no such module)"),
        ({"without": "nemo_rl.algorithms.grpo.validate"}, "nemo_rl.algorithms.grpo.validate"),
        ({"without": "nemo_rl.data.utils.setup_response_data"}, "nemo_rl.data.utils.setup_response_data"),
        ({"returned": SIX + "    unknown: Any\n"}, "EnvironmentReturn"),
        ({"returned": SIX.replace("    answers: Any\n", "")}, "EnvironmentReturn"),
        ({"baseline": "prompts, rewards"}, "(valid_mask)"),
    ],
)
def test_a_checkout_that_does_not_fit_is_refused_by_name_in_check_and_dry_run(
    options: dict[str, str], missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = double(tmp_path / "RL", **options)
    with pytest.raises(ConfigError, match=TESTED):
        require_contract(read_checkout(root))
    config = emitted(tmp_path, root=root, prompts_per_step=2)
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(config))
    assert entrypoint(["--config", str(tmp_path / "x.yaml"), "--check"]) == 2
    told = capsys.readouterr().err
    assert missing in told
    assert TESTED in told
    checked = check_run(compose_config("train", [*WORDS, f"trainer.nemo_rl_root={root}"]), tmp_path / "run")
    found = "\n".join(map(str, checked.findings))
    assert missing in found
    assert TESTED in found


@pytest.mark.parametrize("further", ["mask_sample: Any", "new_thing: Any = None"])
def test_a_later_contract_with_a_field_that_can_be_filled_fits(further: str, tmp_path: Path) -> None:
    assert read_checkout(double(tmp_path / "RL", returned=f"{SIX}    {further}\n")).missing == ()


def test_a_toy_group_that_cannot_run_says_why(tmp_path: Path) -> None:
    root = double(tmp_path / "RL")
    assert describe_failures(run_toy_group(sys.executable, make_python_path(str(root))))
    assert "cannot be started" in describe_failures(
        run_toy_group(str(tmp_path / "no-python"), make_python_path(str(root)))
    )


def test_the_doctor_says_what_is_there_and_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = double(tmp_path / "RL", without="nemo_rl.experience.rollout_manager")
    with serving(model="j") as server:
        words = [*WORDS[:2], f"judge.base_url={server.base_url}", *WORDS[3:], f"run.dir={tmp_path}/run"]
        assert main(["doctor", *words, f"trainer.nemo_rl_root={root}"]) == 2
        told = " ".join(capsys.readouterr().out.split())
        assert main(["doctor", *words, f"trainer.nemo_rl_root={double(tmp_path / 'whole')}"]) == 2
        fitting = " ".join(capsys.readouterr().out.split())
    for needle in ("Python", "GB free", "rollout_manager (no such module)", TESTED, "service judge"):
        assert needle in told
    assert "estimator" not in told, "nothing of a checkout that does not fit can be used"
    for needle in ("estimator grpo", "exact", "refused", "the trainer's interpreter it "):
        assert needle in fitting.replace("│ ", "")
    assert "cannot be reached" not in told
    assert not (tmp_path / "run").exists()


def test_the_doctor_without_a_trainer_looks_at_the_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*WORDS[:2], "judge.base_url=http://127.0.0.1:9/v1", *WORDS[3:6], WORDS[-1], f"run.dir={tmp_path}/run"]
    assert main(["doctor", *words, "trainer.nemo_rl_root=null"]) == 2
    told = " ".join(capsys.readouterr().out.split())
    assert "cannot be reached" in told
    assert "none is named" in told
    assert "no tasks are named" not in told


@pytest.mark.parametrize(
    ("place", "words"), [("nowhere", []), ("file", [*WORDS[:2], *WORDS[3:6], WORDS[-1]]), ("empty", [])]
)
def test_a_folder_without_nemo_rl_is_a_finding_of_the_doctor_without_tasks_too(
    place: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    with serving(model="j") as server:
        judge = [f"judge.base_url={server.base_url}"] if words else []
        assert (
            main(["doctor", *words, *judge, f"trainer.nemo_rl_root={tmp_path / place}", f"run.dir={tmp_path}/run"]) == 2
        )
    told = capsys.readouterr().out
    assert "trainer.nemo_rl_root: there is no NeMo-RL here" in told
    assert f"found:   no {tmp_path / place}" in " ".join(told.split("\n"))
    assert "nothing was found wrong" not in told


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "no-python: it cannot be started: No such file or directory"),
        ("echo gone >&2; exit 3", "no-python: gone"),
        ("""echo '{"Python": "3.10.4", "torch": "2.1"}'""", "no-python: Python 3.10.4"),
        ("""echo '{"Python": "3.12.4", "torch": "9.8.7"}'""", "torch │ 9.8.7"),
    ],
)
def test_the_doctor_asks_the_interpreter_that_trains_where_no_checkout_is_named_too(
    script: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "no-python"
    if script is not None:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    words = [f"run.dir={tmp_path}/run", "trainer.nemo_rl_root=null", f"trainer.python={python}"]
    assert main(["doctor", *words]) == (0 if "torch" in said else 2)
    told = " ".join(capsys.readouterr().out.split())
    assert said in told
    assert ("this interpreter cannot train" in told) == ("torch" not in said)


def test_the_doctor_says_a_judge_that_is_not_chosen_as_that(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", f"run.dir={tmp_path}/run", "trainer.nemo_rl_root=null"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "service judge │ none is chosen: judge=CHOICE" in told
    assert "judge.invalid" not in told


needs_root = pytest.mark.skipif(not ROOT, reason="NEMO_RL_ROOT names no checkout of NVIDIA-NeMo/RL")


@needs_root
def test_the_tested_checkout_is_known_by_its_code() -> None:
    found = read_checkout(Path(ROOT))
    assert found.missing == found.missing_async == ()
    assert found.estimators["grpo"] == found.estimators["reinforce_plus_plus"] == "exact"


HOOKS = {
    "hooks", "estimator grpo", "estimator reinforce_plus_plus", "estimator gdpo", "baseline of dynamic sampling", "rollout", "asynchronous rollout",  # noqa: E501
    "validation", "logging", "mask filter", "data setup", "asynchronous training", "rollout by NeMo Gym",
}  # fmt: skip
"""What a toy group goes through."""
BROKEN = [
    (
        "advantage_estimator.py",
        "(rewards - baseline)",
        "(rewards - 2 * baseline)",
        "estimator grpo",
        "sample 0 of a toy group",
    ),
    (
        "grpo.py",
        "loss_multiplier[mask_sample_bool] = 0",
        "loss_multiplier[~mask_sample_bool] = 1",
        "mask filter",
        "loss_multiplier",
    ),
    ("grpo.py", "advantages.float().mean()", "advantages.float().sum()", "logging", "advantages/mean"),
]


@needs_root
def test_a_toy_group_comes_through_each_hook_of_the_checkout_and_names_those_that_are_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.envs.interfaces.nemo_rl_harness import SHIM

    (tmp_path / "sitecustomize.py").write_text(SHIM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = run_toy_group(sys.executable, make_python_path(ROOT))
    assert set(found) == HOOKS
    assert describe_failures(found) == ""
    broken = tmp_path / "RL"
    shutil.copytree(Path(ROOT, "nemo_rl"), broken / "nemo_rl")
    for name, old, new, *_ in BROKEN:
        file = broken / "nemo_rl/algorithms" / name
        text = file.read_text()
        assert old in text, old
        file.write_text(text.replace(old, new))
    # Rewards no longer reach a rollout as the environment gave them.
    file = broken / "nemo_rl/experience/rollouts.py"
    file.write_text(
        file.read_text() + "\n_kept = calculate_rewards\n\ndef calculate_rewards(batch, envs):\n"
        "    out = _kept(batch, envs)\n    return out._replace(rewards=out.rewards * 2)\n"
    )
    text, made = file.read_text(), 'torch.tensor([r["full_result"]["reward"] for r in results])'
    assert made in text
    file.write_text(text.replace(made, f"2 * {made}"))
    found = run_toy_group(sys.executable, make_python_path(str(broken)))
    rollouts = {"rollout", "asynchronous rollout", "asynchronous training", "validation", "rollout by NeMo Gym"}
    assert {name for name, problem in found.items() if problem} == {*(row[3] for row in BROKEN), *rollouts}
    assert all("reward 2.0, and its verdict says 1.0" in found[name] for name in rollouts)
    for *_, name, needle in BROKEN:
        assert needle in found[name]
    config = compose_config("train", [*WORDS, f"trainer.nemo_rl_root={broken}"])
    assert "logging: advantages/mean" in "\n".join(map(str, check_run(config, tmp_path / "run").findings))
    main(["doctor", *WORDS, f"run.dir={tmp_path}/run", f"trainer.nemo_rl_root={broken}"])
    told = " ".join(capsys.readouterr().out.split())
    assert "toy group: logging" in told
    assert "failed: advantages/mean" in told
