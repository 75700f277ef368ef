"""What an error tells to do next is a command that works, in the user's own words."""

from __future__ import annotations

import pickle
import shlex
from pathlib import Path

import pytest
from tests.support.runs import STRICT

from gavel.envs.instruction_following.instructions import LanguageUnsupported
from gavel.envs.types import TaskError
from gavel.launch.cli.command_line import main
from gavel.launch.compose.compose import compose_config
from gavel.launch.compose.next_command import FailedCommand
from gavel.models.errors import ConfigError, Findings, InputError, NextCommand

Capture = pytest.CaptureFixture[str]
SERVED = ("base_url=http://127.0.0.1:1/v1", "model=m")


def test_the_probe_command_has_the_words_that_choose_the_judge_and_composes() -> None:
    words = [
        "env=abstention",
        "judge=external",
        *(f"judge.{word}" for word in SERVED),
        "rubrics.abstention.max_response_tokens=32",
        "services.second.mode=external",
        *(f"services.second.{word}" for word in SERVED),
        "certificates=my certificates",
        "reward=tiered",
        "reward.abstain=0.3",
        "trainer.model=p",
        "cluster=slurm",
        "run.dir=runs/first",
        "tasks.path=t.jsonl",
        "dry_run=true",
    ]
    command = FailedCommand("train", words, ["my conf"]).make_probe_command()
    assert command.startswith("gavel probe --config-dir 'my conf' env=abstention judge=external")
    assert "'certificates=my certificates'" in command
    assert not any(word in command for word in ("reward", "trainer", "cluster", "run.dir", "tasks.path", "dry_run"))
    assert compose_config("probe", shlex.split(command)[4:]).certificates == "my certificates"


def test_a_remedy_that_is_a_command_is_said_in_the_words_of_the_command_that_failed() -> None:
    failed = FailedCommand("train", ["env=abstention"], ["conf d"], ["runs/a"])
    plain = ConfigError("bad", remedy="run `gavel probe` with this composition")
    probe = ConfigError("bad", remedy=NextCommand("probe", "run `gavel probe` with this composition", ", or not"))
    sweep = ConfigError("bad", remedy=NextCommand("sweep", "write -m"))
    assert str(probe).endswith("fix:     run `gavel probe` with this composition, or not"), "where nobody spells it"
    told = str(failed.spell_remedies(Findings([plain, probe, sweep])))
    assert "run `gavel probe --config-dir 'conf d' env=abstention`, or not" in told
    assert "for a run of each: gavel train --config-dir 'conf d' runs/a -m env=abstention" in told
    assert plain.remedy == "run `gavel probe` with this composition", "a text is never rewritten"
    assert "`gavel serve` has no sweeps" in str(
        FailedCommand("serve", ()).spell_remedies(ConfigError("bad", remedy=NextCommand("sweep", "write -m")))
    )


def test_a_training_without_certificate_and_tasks_is_told_the_commands_that_make_both(
    tmp_path: Path, capsys: Capture
) -> None:
    words = ["env=abstention", STRICT, "judge=external", *(f"judge.{word}" for word in SERVED)]
    code = main(["train", *words, f"tasks.path={tmp_path}/made/tasks.jsonl", f"run.dir={tmp_path}/run", "dry_run=true"])
    text = capsys.readouterr().err
    assert code == 2
    assert f"run `{shlex.join(['gavel', 'probe', *words])}`" in text
    assert (
        f"gavel prepare env=abstention source.path=SOURCE.jsonl 'source.protected=[BENCHMARK.jsonl]' "
        f"out={tmp_path}/made" in text
    )


def test_a_variable_that_is_not_set_is_told_as_it_is_written_in_a_shell(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GAVEL_TEST_UNSET", raising=False)
    judge = ["judge=remote_api", *(f"judge.{word}" for word in SERVED), "judge.api_key_env=GAVEL_TEST_UNSET"]
    assert main(["serve", "env=abstention", STRICT, *judge, "http.port=0"]) == 2
    assert "export GAVEL_TEST_UNSET=…" in capsys.readouterr().err


def test_a_choice_that_is_not_there_is_told_keys_only_where_the_group_has_some() -> None:
    with pytest.raises(ConfigError) as experiment:
        compose_config("rollout", ["experiment=zzz"])
    assert "KEY=VALUE" not in experiment.value.remedy
    assert "--config-dir DIR" in experiment.value.remedy
    with pytest.raises(ConfigError, match=r"policy\.KEY=VALUE"):
        compose_config("rollout", ["policy=zzz"])


@pytest.mark.parametrize("more", [(), tuple(f"judge.{word}" for word in SERVED)])
def test_a_judge_that_is_served_elsewhere_cannot_be_served_here_and_that_is_what_is_said(
    more: tuple[str, ...], capsys: Capture
) -> None:
    assert main(["judge", "judge=external", *more]) == 2
    text = capsys.readouterr().err
    assert "there is nothing to serve" in text
    assert "judge=smollm2" in text


def test_a_service_asks_for_its_policy_only_where_it_plays() -> None:
    words = ["env=abstention", "judge=smollm2"]
    assert not compose_config("serve", words).gym.play
    with pytest.raises(ConfigError, match=r"this choice needs policy\.base_url"):
        compose_config("serve", [*words, "gym.play=true"])
    assert compose_config("serve", [*words, "gym.play=true", "policy=smollm2"]).policy.mode == "managed"


@pytest.mark.parametrize("kind", [InputError, ConfigError, TaskError, LanguageUnsupported])
def test_an_error_that_is_told_elsewhere_stays_what_it_is(kind: type[InputError]) -> None:
    remedy = NextCommand("probe", "run `gavel probe` with this composition")
    failed = kind("bad", where="f:3", field="a.b", found="1", allowed="2", remedy=remedy)
    moved = failed.copy_with(field="c.a.b")
    assert type(moved) is kind
    assert str(moved) == str(failed).replace("a.b", "c.a.b")
    assert (moved.remedy, str(pickle.loads(pickle.dumps(moved)))) == (remedy, str(moved))
