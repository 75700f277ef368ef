"""`gavel new env NAME` writes an environment that works as it stands: its test passes, it installs, it grades."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.fault_server import FaultServer
from tests.support.runs import gavel, rows

from gavel.launch.cli.command_line import main
from gavel.launch.commands.new import FILES, check_name
from gavel.models.errors import ConfigError

NAME = "capital_quiz"


def _run(*words: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new") / "quiz"
    assert main(["new", "env", NAME, f"into={folder}"]) == 0
    return folder


@pytest.fixture(scope="module")
def site(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the project is installed, as pip does it, beside the running environment."""
    if int(metadata.version("setuptools").split(".")[0]) < 69:
        pytest.skip("building needs setuptools 69, which the extra `dev` installs")
    target = tmp_path_factory.mktemp("site")
    words = ("install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
    _run("-m", "pip", *words, "--target", str(target), str(project), cwd=project.parent)
    return target


def test_every_file_is_written_and_none_is_written_over(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        path.relative_to(project).as_posix()
        for path in project.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files >= {path.format(name=NAME) for path in FILES.values()}
    assert not any(
        "{{" in path.read_text() for path in project.rglob("*.*") if path.suffix in (".py", ".toml", ".yaml", ".jsonl")
    )
    before = (project / "README.md").read_bytes()
    capsys.readouterr()
    assert main(["new", "env", "other_quiz", f"into={project}"]) == 2
    assert "nothing is overwritten" in capsys.readouterr().err
    assert (project / "README.md").read_bytes() == before
    (tmp_path / "file").write_text("mine")
    assert main(["new", "env", "other_quiz", f"into={tmp_path / 'file'}"]) == 2


def test_its_own_test_passes_before_anything_is_installed(project: Path) -> None:
    out = _run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", cwd=project)
    assert "6 passed" in out


def reply(body: dict[str, Any]) -> str:
    """Know one capital letter for letter, one in a sentence, and a wrong metal; judge by whether the candidate says
    Helsinki.
    """
    text = body["messages"][-1]["content"]
    if body["model"] == "judge":
        return "CORRECT" if "Helsinki" in text.rpartition("<candidate>")[2] else "INCORRECT"
    return "Nairobi" if "Kenya" in text else "It is Helsinki." if "Finland" in text else "Iron"


async def test_installed_it_grades_and_its_own_reward_is_chosen(project: Path, site: Path, tmp_path: Path) -> None:
    samples = site / NAME / "data" / "samples.jsonl"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    async with FaultServer(reply=reply) as server:
        models = [
            "policy=external",
            f"policy.base_url={server.base_url}",
            "policy.model=policy",
            "judge=external",
            f"judge.base_url={server.base_url}",
            "judge.model=judge",
        ]
        run = tmp_path / "run"
        done = await gavel(
            "rollout", f"env={NAME}", f"tasks.path={samples}", f"run.dir={run}", *models, env=environment
        )
        assert done.code == 0, done.out + done.err
        assert {row["task_id"]: (row["outcome"]["label"], row["reward"]["value"]) for row in rows(run)} == {
            "capital-1": ("correct", 1.0),
            "capital-2": ("correct", 1.0),
            "metal-1": ("incorrect", 0.0),
        }
        assert Counter(seen.body["model"] for seen in server.requests) == {
            "policy": 3,
            "judge": 2,
        }  # one is the reference itself
    assert orjson.loads((run / "metrics.json").read_bytes())["metrics"][f"{NAME}/correct"]["n"] == 3
    again = await gavel(
        "rescore", str(run), f"reward={NAME}", "reward.incorrect=-1", f"into={tmp_path / 'child'}", env=environment
    )
    assert again.code == 0, again.out + again.err
    assert [row["reward"]["value"] for row in rows(tmp_path / "child") if row["task_id"] == "metal-1"] == [-1.0]

    listed = await gavel("list", "environments", "format=json", env=environment)
    (item,) = [item for item in orjson.loads(listed.out) if item["name"] == NAME]
    assert item["choose"] == f"env={NAME}"
    assert item["summary"].startswith(f"{NAME}: one question, one reply")
    rewards = orjson.loads((await gavel("list", "rewards", "format=json", env=environment)).out)
    assert {item["name"]: item["of"] for item in rewards}[NAME] == NAME
    schema = await gavel("schema", NAME, env=environment)
    assert orjson.loads(schema.out)["$defs"]["Target"]["required"] == ["question", "reference"]
    wrong = await gavel("schema", "capital_quizz", env=environment)
    assert wrong.code == 2
    assert f"env={NAME}" in wrong.err


async def test_a_broken_package_is_named_and_breaks_nothing_of_ours(site: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import not_there_at_all\n")
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gavel.plugins]\nbroken = broken:PLUGIN\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ours = await gavel("schema", "abstention", env=environment)
    assert ours.code == 0, ours.err
    assert (await gavel("list", env=environment)).code == 0
    theirs = await gavel("schema", "broken", env=environment)
    assert theirs.code == 2
    assert "No module named 'not_there_at_all'" in theirs.err
    assert "pip uninstall broken" in theirs.err


@pytest.mark.parametrize(
    "name",
    [
        "Quiz",
        "2quiz",
        "my-env",
        "a__b",
        "quiz_",
        "class",
        "match",
        "any",
        "json",
        "abstention",
        "tiered",
        "tests",
        "x" * 41,
        "é",
        "null",
        "true",
        "off",
        "nan",
        "gavel_rl",
        "hydra_core",
    ],
)
def test_a_name_that_cannot_be_one_is_refused_with_the_rule(name: str) -> None:
    with pytest.raises(ConfigError, match="small letters, digits and single underscores"):
        check_name(name)


def test_what_is_written_is_whole_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "my quiz"
    with monkeypatch.context() as patched:
        patched.setattr("gavel.launch.commands.new.write_whole", _full_after(3))
        assert main(["new", "env", "other_quiz", f"into='{place}'"]) != 0
    assert list(tmp_path.iterdir()) == []
    capsys.readouterr()
    assert main(["new", "env", "other_quiz", f"into='{place}'"]) == 0
    assert f"pip install -e '{place}[dev]', then: python -m pytest '{place}'" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["my quiz"]


def _full_after(files: int) -> Any:
    """A disk that takes so many files."""
    left = iter(range(files))

    def write(path: Path, data: bytes) -> None:
        if next(left, None) is None:
            raise OSError(28, "No space left on device", str(path))
        path.write_bytes(data)

    return write


def test_a_home_that_is_nobodys_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "env", "other_quiz", "into='~nobody-of-this-name/x'"]) == 2
    assert "a path begins with ~, and there is no such home" in capsys.readouterr().err


def test_what_cannot_be_begun_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["new"], ["new", "env"], ["new", "prompt", "x"]):
        assert main(words) == 2
    assert "write: gavel new env NAME" in capsys.readouterr().err
