"""What a person can mend exits with 2, names the key and says how; nothing is left behind, and no secret is shown or
stored.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.runs import arguments, write_tasks

from gavel.launch.cli.command_line import main
from gavel.launch.config.os_errors import REMEDIES, explain_os_error

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A rollout that would work but for its models, which do not listen; run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    found = arguments(
        write_tasks(tmp_path / "t.jsonl", 2),
        Path("run"),
        "http://127.0.0.1:9/v1",
        "policy.attempts=1",
        "judge.attempts=1",
    )
    return [word for word in found if not word.startswith("run.dir")]


def refused(capsys: Capture, words: list[str]) -> str:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.removeprefix("gavel: ")


@pytest.mark.parametrize(
    ("more", "field"),
    [
        (["judge.base_url=http://127.0.0.1:99999/v1"], "judge.base_url"),
        (["judge.base_url=http://[::1/v1"], "judge.base_url"),
        (["judge=smollm2", "judge.port=70000"], "judge.port"),
        (["reward=null"], "reward"),
        (["failure=null"], "failure"),
        (["env=null"], "env"),
        (["policy=null"], "policy"),
        (["reward="], "reward"),
        (["failure.window=0"], "failure.window"),
        (["failure.minimum=300"], "failure.minimum"),
        (["failure.max_ungraded_fraction=1.5"], "failure.max_ungraded_fraction"),
        (["env.binding=nobody"], "env.binding"),
        (["policy.sampling.temperature=nan"], "policy.sampling.temperature"),
        (["policy.sampling.temperature=-1"], "policy.sampling.temperature"),
        (["rubrics.abstention.temperature=inf"], "rubrics.abstention.temperature"),
        (["policy.rpm=0"], "policy.rpm"),
        (["policy.timeout.total=0"], "policy.timeout.total"),
        (["policy.api_key_env=[]"], "policy.api_key_env"),
        (["policy.api_key_env=GAVEL_TEST_NOT_SET"], "policy.api_key_env"),
        (["judge.header_env={X-Gate: GAVEL_TEST_NOT_SET}"], "judge.header_env.X-Gate"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_its_key_before_a_folder_is_made(
    words: list[str], more: list[str], field: str, capsys: Capture
) -> None:
    assert refused(capsys, [*words, *more, "run.dir=new"]).startswith(f"{field}: ")
    assert not Path("new").exists()


def test_an_option_that_may_be_left_out_may_also_be_null(words: list[str], capsys: Capture) -> None:
    assert main([*words, "experiment=null", "dry_run=true", "run.dir=new"]) == 0
    assert "2 good" in capsys.readouterr().out


def test_a_dry_run_needs_no_credential(words: list[str], capsys: Capture) -> None:
    assert main([*words, "policy.api_key_env=GAVEL_TEST_NOT_SET", "dry_run=true"]) == 0
    assert capsys.readouterr().err == ""


SECRET = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456"


@pytest.mark.parametrize(
    "more",
    [
        [f"policy.api_key_env={SECRET}"],
        [f"policy.api_key_env=[{SECRET}]"],
        [f"policy.api_key_env=[{SECRET}"],
        [f"policy.{SECRET}=1"],
        [f"policy.base_url=http://127.0.0.1:9/v1?api-key={SECRET}"],
        [f"judge.engine_args={{hf_token: {SECRET}}}"],
        ["x=1", SECRET],
        [f"policy.sampling.extra={{user: {SECRET}}}"],
        [f"policy.default_headers={{X-Team: {SECRET}}}"],
    ],
)
def test_a_key_on_the_command_line_is_neither_shown_nor_stored(
    words: list[str], more: list[str], tmp_path: Path, capsys: Capture
) -> None:
    assert SECRET not in refused(capsys, [*words, *more, "run.dir=new"])
    assert not any(SECRET in path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert not Path("new").exists()


def test_a_verb_that_never_calls_the_policy_does_not_store_its_key_either(words: list[str], capsys: Capture) -> None:
    of_probe = ["probe", "env=abstention", "judge=smollm2", f"policy.api_key_env={SECRET}", "run.dir=new"]
    assert refused(capsys, of_probe).startswith("policy.api_key_env: ")
    assert not Path("new").exists()


# Folders and files


@pytest.mark.parametrize(("place", "remedy"), [("/dev/null/x", "is a file"), ("/proc/x", "choose another place")])
def test_a_run_folder_that_cannot_be_made_names_its_key_and_what_to_do(
    words: list[str], place: str, remedy: str, capsys: Capture
) -> None:
    text = refused(capsys, [*words, f"run.dir={place}"])
    assert text.startswith(f"{place}: run.dir: ")
    assert remedy in text


def test_a_cache_that_is_a_file_names_its_key(words: list[str], capsys: Capture) -> None:
    Path("cache").write_text("")
    text = refused(capsys, ["prepare", "env=abstention", "assets.cache=cache"])
    assert ": assets.cache: " in text
    assert "fix:" in text


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOTDIR, "is a file"),
        (errno.EEXIST, "a file stands"),
        (errno.EISDIR, "a folder stands"),
        (errno.EROFS, "nothing can be written"),
    ],
)
def test_every_usual_refusal_of_the_system_has_a_remedy_and_the_longest_path_names_the_key(
    number: int, remedy: str
) -> None:
    config = {"run": {"dir": "/a/run"}, "assets": {"cache": "/a"}, "runs": ["/b"], "env": {"name": "/"}}
    failed = explain_os_error(OSError(number, os.strerror(number), "/a/run/manifest.json"), config)
    assert (failed.field, failed.where) == ("run.dir", "/a/run/manifest.json")
    assert remedy in failed.remedy
    assert explain_os_error(OSError(number, "", "/a/else"), config).field == "assets.cache"
    assert explain_os_error(OSError(number, "", "/c"), config).field == ""
    assert all(REMEDIES.values())


@pytest.mark.parametrize("path", ["runs/a=b", "/data/x=1/run"])
def test_a_run_folder_with_an_equals_sign_is_told_how_to_be_named(path: str, capsys: Capture) -> None:
    assert f"run.dir='{path}'" in refused(capsys, ["rollout", path, "experiment=demo"])


def test_a_run_folder_with_an_equals_sign_can_be_named_by_its_key(words: list[str], capsys: Capture) -> None:
    assert main([*words, "run.dir=runs/a=b", "dry_run=true"]) == 0
    assert "runs/a=b" in capsys.readouterr().out


def run(words: list[str | bytes], **environment: str) -> subprocess.CompletedProcess[bytes]:
    command: list[str | bytes] = [sys.executable, "-m", "gavel.launch.cli", *words]
    return subprocess.run(command, capture_output=True, timeout=60, check=False, env={**os.environ, **environment})


@pytest.mark.parametrize("key", [b"tasks.path", b"run.dir"])
def test_a_name_that_is_not_utf8_is_refused(words: list[str], key: bytes) -> None:
    done = run([*words, key + b"=a\xff"])
    assert done.returncode == 2
    assert rb"a\xff" in done.stderr
    assert b"not UTF-8" in done.stderr


def test_a_locale_without_utf8_is_told_what_to_set(words: list[str]) -> None:
    done = run([*words, "run.dir=é"], LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.returncode == 2
    assert b"PYTHONUTF8=1" in done.stderr


def test_a_config_file_that_is_not_utf8_is_named(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "mine.yaml").write_bytes(b"model: \xe9\n")
    assert refused(capsys, ["rollout", "--config-dir", str(tmp_path), "policy=mine"]).startswith(
        f"{tmp_path / 'policy' / 'mine.yaml'}: "
    )
