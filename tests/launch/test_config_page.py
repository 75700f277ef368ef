"""The page on the config: its worked example runs, its tables are true."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from gavel.launch.cli.command_line import main
from gavel.launch.compose.compose import compose_config
from gavel.launch.compose.verbs import VERBS
from gavel.launch.config.groups import CONF, list_choices

PAGE = (Path(__file__).parents[2] / "docs" / "config.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_worked_example_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files = re.findall(r"^`(my_conf/[^`]+)`:\n\n```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert len(files) == 2
    for name, text in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (commands,), (expected,) = blocks("bash"), blocks("text")
    outputs = []
    for command in commands.splitlines():
        assert main(shlex.split(command)[1:]) == 0, command
        outputs.append(capsys.readouterr().out)
    for line in expected.splitlines():
        assert line in outputs[0]
    assert {path.name for path in tmp_path.iterdir()} == {"my_conf"}, "a dry run writes nothing"


def test_the_gateways_command_composes_as_written_and_asks_the_policy_it_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "nemo_gym.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```bash\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    serve = shlex.split(block.replace("\\\n", " ").splitlines()[0])
    assert serve[:2] == ["gavel", "serve"]
    assert (
        main([*serve[1:], "rubrics.abstention.profile=gavel/qa-abstention-v1", "dry_run=true"]) == 0
    )  # which needs no download
    assert re.search(r"service policy +│ my-model \(http://127\.0\.0\.1:8001/v1\)", capsys.readouterr().out)


def test_the_declaration_of_a_second_service_composes(tmp_path: Path) -> None:
    (text,) = [block for block in blocks("yaml") if block.startswith("services:")]
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "page.yaml").write_text("# @package _global_\n" + text)
    config = compose_config("rollout", ["experiment=page", "policy=smollm2"], [tmp_path])
    assert config.services["second"].model == "other-judge"
    assert config.judging.bindings["abstention"].judge == "second"


def test_the_table_of_groups_says_which_verbs_use_them() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ((?:`\w+`(?:, )?)+) \|$", PAGE, re.MULTILINE))
    for group in ("env", "policy", "judge", "reward", "failure", "source", "trainer", "cluster"):
        assert set(re.findall(r"`(\w+)`", rows[group])) == {
            verb.name for verb in VERBS.values() if group in verb.groups
        }


def test_the_table_of_services_has_every_choice_of_policy_and_judge() -> None:
    providers = (Path(__file__).parents[2] / "docs" / "providers.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `(\w+)` \| [^|]+ \|$", PAGE, re.MULTILINE)) | set(
        re.findall(r"^\| `(\w+)` \|.*\|$", providers, re.MULTILINE)
    )
    assert named == {*list_choices("policy", [CONF]), *list_choices("judge", [CONF])}
