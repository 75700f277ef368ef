"""Every choice for a provider works with a server that refuses what the provider refuses: as a judge of each form, and
as a policy.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.provider_table import COUNT, NATIVE, ROLES, commands, prompts_at_hand
from tests.support.providers import KEY, PLAIN, PROVIDERS, serve
from tests.support.runs import STRICT, expected_label, rows, write_tasks

from gavel.launch.cli.command_line import main
from gavel.launch.config.groups import CONF, list_choices


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", PROVIDERS)
def test_every_row_is_graded(name: str, role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = PROVIDERS[name]
    if role == NATIVE and not prompts_at_hand():
        pytest.skip("the ported prompt is not at hand: no ../shared/data/abstention/omniscience_grader.txt")
    if provider.key_variable:
        monkeypatch.setenv(provider.key_variable, KEY)
    with serve(provider, PLAIN["judge" if role == "policy" else "policy"]) as (server, other):
        code = main(commands(role, server, other, tmp_path))
    found = rows(tmp_path / "run")
    assert code == 0, rows(tmp_path / "run", "errors.jsonl")
    assert len(found) == COUNT
    if role != "judge of instructions":
        assert {row["task_id"]: row["outcome"]["label"] for row in found} == {
            f"q-{n}": expected_label(n) for n in range(COUNT)
        }


NOT_PROVIDERS = {"external", "remote_api", "qwen3_32b", "smollm2", "none", "vera_mh_recommended"}


@pytest.mark.parametrize("group", ["judge", "policy"])
def test_every_choice_has_a_server_here_and_both_groups_offer_it(group: str) -> None:
    assert {provider.choice for provider in PROVIDERS.values()} - {"external"} == set(
        list_choices(group, [CONF])
    ) - NOT_PROVIDERS


@pytest.mark.parametrize(
    ("name", "said", "noted"),
    [
        (
            "openai_reasoning behind an alias",
            "takes the output limit as max_completion_tokens",
            "not sent, the server refused it: temperature",
        ),
        ("tgi as an unknown server", "from now on: tgi", ""),
        (
            "dashscope as an unknown server",
            "asked for enable_thinking=false",
            "sent, for the server asks for it: enable_thinking=False",
        ),
        (
            "deepseek as an unknown server",
            "from now on: json_object",
            "not sent, the server refused it as json_schema: response_format",
        ),
    ],
)
def test_what_is_learned_is_said_once_costs_no_attempt_and_stands_in_the_receipts(
    name: str, said: str, noted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve(PROVIDERS[name], PLAIN["policy"]) as (server, other):
        words = commands("judge, strict rubric", server, other, tmp_path)
        assert main([*words, "judge.attempts=1", "concurrency=1"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.count(said) == 1
    asked = [receipt for row in rows(tmp_path / "run") for receipt in row["receipts"] if receipt["role"] == "judge"]
    assert all(noted in receipt["notes"] for receipt in asked if noted)
    assert len(server.refused) <= 4, "only the first call is refused"


def test_a_key_that_is_not_set_and_a_model_that_is_not_named_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AZURE_OPENAI_API_KEY", raising=False)
    write_tasks(tmp_path / "t.jsonl", 1)
    common = [
        "rollout",
        "env=abstention",
        STRICT,
        f"tasks.path={tmp_path / 't.jsonl'}",
        "policy=smollm2",
        f"run.dir={tmp_path / 'run'}",
    ]
    for words, wanted in (
        (["judge=anthropic"], "set judge.model="),
        (["judge=azure", "judge.model=d"], "set judge.base_url="),
        (
            ["judge=azure", "judge.model=d", "judge.base_url=http://127.0.0.1:9/openai/v1"],
            "export AZURE_OPENAI_API_KEY=…",
        ),
    ):
        assert main([*common, *words]) == 2
        assert wanted in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
