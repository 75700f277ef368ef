"""The ``gavel`` command: help, options, exit codes, and what a person sees when something is wrong."""

from __future__ import annotations

import errno
import importlib
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.rubric_files import write_pair_rubric

from gavel.launch.cli import command_line as cli
from gavel.launch.cli.command_line import main, parse_words
from gavel.launch.compose.verbs import GROUPS, VERBS
from gavel.launch.config.groups import CONF, list_choices
from gavel.models.errors import ConfigError

REMOTE = (
    "policy=external", "policy.base_url=http://127.0.0.1:8000/v1", "policy.model=p",
    "judge=external", "judge.base_url=http://127.0.0.1:8001/v1", "judge.model=j",
)  # fmt: skip

Capture = pytest.CaptureFixture[str]
Verb = Callable[[Callable[..., int]], None]


@pytest.fixture
def rollout(monkeypatch: pytest.MonkeyPatch) -> Verb:
    """Put a function in the place of the rollout verb."""

    def put(run: Callable[..., int]) -> None:
        module = types.ModuleType("gavel.launch.commands.rollout")
        module.run = run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "gavel.launch.commands.rollout", module)

    return put


def raising(failed: BaseException) -> Callable[..., int]:
    def run(config: object, console: object) -> int:
        raise failed

    return run


def command(*words: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gavel.launch.cli", *words], capture_output=True, text=True, timeout=60, check=False
    )


# Help


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_the_command_alone_explains_itself(words: list[str], capsys: Capture) -> None:
    assert main(words) == 0
    text = capsys.readouterr().out
    for verb in VERBS.values():
        assert f"  {verb.name} " in text
        assert verb.summary in text
    assert "gavel rollout experiment=demo" in text


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_the_help_of_a_verb_shows_examples_and_the_choices_of_each_group(verb: str, flag: str, capsys: Capture) -> None:
    assert main([verb, flag]) == 0
    text = capsys.readouterr().out
    assert f"  gavel {verb} " in text
    for group in VERBS[verb].groups:
        assert f"  {group}=" in text
        for choice in list_choices(group, [CONF]):
            assert choice in text


def test_help_shows_the_choices_of_ones_own_folder(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "my_model.yaml").write_text("mode: external\n")
    assert main(["rollout", "--config-dir", str(tmp_path), "--help"]) == 0
    assert "my_model" in capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: str(verb.name))
def test_every_example_in_the_help_composes(verb: cli.Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pair_rubric(tmp_path)  # better.yaml, which examples name
    monkeypatch.chdir(tmp_path)
    from gavel.launch.compose.compose import compose_config
    from gavel.launch.training.sweep.run import expand_points

    for tail, _ in verb.examples:
        line = parse_words([verb.name, *tail.split(" ")])
        points = expand_points(line.overrides) if line.multirun else [()]
        assert points, "an example of a sweep sweeps something"
        for point in points:
            compose_config(
                verb.name,
                [*(word for word in line.overrides if not line.multirun or "," not in word), *point],
                line.config_dirs,
                line.runs,
            )


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: str(verb.name))
def test_every_key_in_the_help_exists(verb: cli.Verb) -> None:
    from gavel.launch.config import schema
    from gavel.launch.config.keys import find_place
    from gavel.launch.training.verb_jobs import PLACES
    from gavel.launch.training.verb_jobs import VERBS as HANDED_OVER

    placeholders = {"reward.…": "reward", "services.NAME.…": "services.x"}
    for shown, _ in verb.keys:
        key = placeholders.get(shown, shown.partition("=")[0])
        if verb.name in HANDED_OVER and key in PLACES:
            continue
        find_place(getattr(schema, verb.schema), key, {})


def test_only_known_groups_are_named_by_verbs() -> None:
    assert all(set(verb.groups) <= set(GROUPS) for verb in VERBS.values())


def test_help_imports_nothing_heavy_and_is_there_at_once() -> None:
    code = (
        "import sys; from gavel.launch.cli import main; main(['rollout', '--help']); "
        "heavy = {'hydra', 'omegaconf', 'pydantic', 'rich', 'aiohttp', 'numpy', 'orjson', 'yaml'} & set(sys.modules); "
        "print('heavy:', sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy: []"


def test_the_version_is_the_packages(capsys: Capture) -> None:
    import gavel

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gavel {gavel.__version__}\n"


# Reading the command line


def test_the_first_word_after_the_verb_is_the_run() -> None:
    line = parse_words(["rescore", "runs/a", "reward.abstain=0.3", "--config-dir", "mine", "--config-dir=other"])
    assert (line.verb, line.runs, line.overrides, line.config_dirs) == (
        "rescore",
        ("runs/a",),
        ("reward.abstain=0.3",),
        ("mine", "other"),
    )


def test_a_second_word_that_stands_alone_is_an_error(capsys: Capture) -> None:
    assert main(["rescore", "runs/a", "runs/b"]) == 2
    assert "runs/b" in capsys.readouterr().err


def test_a_run_given_twice_takes_the_word_after_the_verb(rollout: Verb) -> None:
    seen: list[str] = []
    rollout(lambda config, console: seen.append(config.run.dir) or 0)
    assert main(["rollout", "runs/word", *REMOTE, "run.dir=runs/key"]) == 0
    assert seen == ["runs/word"]


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["rollout", "--hlep"], "--help"),
        (["rollout", "--dry-run"], "dry_run=true"),
        (["rollout", "--seed=3"], "seed=3"),
    ],
)
def test_an_option_that_does_not_exist_is_refused_with_what_was_meant(
    words: list[str], remedy: str, capsys: Capture
) -> None:
    assert main(words) == 2
    assert remedy in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--cfg", "job"], ["--cfg=job"], ["-c", "job"], ["--info"], ["--resolve"]])
def test_hydras_own_flags_are_refused_with_what_shows_a_config_here(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rollout", *words, "env=abstention"]) == 2
    told = capsys.readouterr().err
    assert "dry_run=true" in told
    assert "config.yaml" in told
    assert "did you mean" not in told


def test_an_option_without_its_value_is_refused(capsys: Capture) -> None:
    assert main(["rollout", "--config-dir"]) == 2
    assert "--config-dir" in capsys.readouterr().err


def test_a_misspelled_verb_exits_2_and_names_the_nearest(capsys: Capture) -> None:
    assert main(["rolout", "experiment=demo"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "did you mean `gavel rollout`?" in captured.err


# Running a verb


def test_a_verb_gets_its_config_and_a_console_and_gives_the_exit_code(rollout: Verb, capsys: Capture) -> None:
    def run(config: object, console: object) -> int:
        console.print("concurrency", config.concurrency)  # type: ignore[attr-defined]
        return 3

    rollout(run)
    assert main(["rollout", *REMOTE, "concurrency=9"]) == 3
    assert capsys.readouterr().out == "concurrency 9\n"


def test_output_is_plain_and_lines_are_whole_when_it_is_not_a_terminal(rollout: Verb, capsys: Capture) -> None:
    long = "x" * 300

    def run(config: object, console: object) -> int:
        console.print(f"[bold]{long}[/bold]")  # type: ignore[attr-defined]
        return 0

    rollout(run)
    main(["rollout", *REMOTE])
    assert capsys.readouterr().out == long + "\n"


def test_an_error_for_the_user_is_one_screen_without_a_trace(rollout: Verb, capsys: Capture) -> None:
    rollout(raising(ConfigError("no good", where="f.jsonl:3", field="a.b", found="x", allowed="y", remedy="do z")))
    assert main(["rollout", *REMOTE]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "gavel: f.jsonl:3: a.b: no good\n  found:   x\n  allowed: y\n  fix:     do z\n"


def test_an_interrupt_exits_130(rollout: Verb, capsys: Capture) -> None:
    rollout(raising(KeyboardInterrupt()))
    assert main(["rollout", *REMOTE]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_an_unexpected_error_keeps_its_trace_in_a_file(
    rollout: Verb, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rollout(raising(ZeroDivisionError("oops")))
    assert main(["rollout", *REMOTE]) == 1
    text = capsys.readouterr().err
    assert "internal error: ZeroDivisionError: oops" in text
    assert "Traceback" not in text
    (trace,) = tmp_path.glob("gavel-*.trace.txt")
    assert str(trace) in text
    assert "ZeroDivisionError: oops" in trace.read_text()


def test_the_trace_is_shown_when_asked_for(rollout: Verb, capsys: Capture) -> None:
    rollout(raising(ZeroDivisionError("oops")))
    assert main(["rollout", *REMOTE, "--traceback"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "remedy"), [(errno.ENOSPC, "make room"), (errno.EACCES, "permissions")])
def test_what_the_operating_system_refuses_is_said_in_one_screen(
    number: int, remedy: str, rollout: Verb, capsys: Capture
) -> None:
    rollout(raising(OSError(number, os.strerror(number), "runs/x/results.jsonl")))
    assert main(["rollout", *REMOTE]) == 2
    text = capsys.readouterr().err
    assert f"runs/x/results.jsonl: {os.strerror(number)}" in text
    assert remedy in text
    assert len(text.splitlines()) == 2


def test_a_narrow_encoding_shows_a_substitute_and_does_not_fail() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "gavel.launch.cli", "--help"],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert run.returncode == 0
    assert b"usage: gavel VERB" in run.stdout


def test_the_module_runs_as_a_command_too() -> None:
    assert command("--version").returncode == 0
    assert command("rollout", "sed=3").returncode == 2


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: str(verb.name))
def test_every_verb_has_its_module(verb: cli.Verb) -> None:
    assert callable(importlib.import_module(verb.module).run)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("inspect", "gavel rollout RUN inspect=TASK"),
        ("run", "gavel rollout"),
        ("eval", "gavel rollout"),
        ("rolout", "gavel rollout"),
    ],
)
def test_a_verb_of_other_programs_is_answered_with_what_does_it_here(
    word: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word, "runs/demo"]) == 2
    assert f"did you mean `{meant}`?" in capsys.readouterr().err
