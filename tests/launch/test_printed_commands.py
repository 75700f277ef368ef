"""A command that is printed to be copied does in a shell what it says, whatever names stand in it."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from gavel.launch.cli.command_line import main
from gavel.launch.runs.existing import find_existing_run
from gavel.launch.runs.sweep_index import INDEX, SweepIndex, SweepPoint, _describe_missing
from gavel.launch.runs.training_plan import PLAN
from gavel.models.errors import GavelError

NAMES = ("q;touch PWN3;", "a b", "$x", "it's", '"q"', "$(touch PWN3)", "a&touch PWN3&", "`touch PWN3`", "*")
LAUNCH = Path(__file__).resolve().parents[2] / "launch"


def shell_words(command: str, folder: Path) -> list[str]:
    """The words of a command as a shell reads them; nothing else is run."""
    text = f"gavel() {{ printf '%s\\0' gavel \"$@\"; }}\n{command}\n"
    done = subprocess.run(["bash", "-c", text], capture_output=True, cwd=folder, check=False, timeout=30)
    assert list(folder.iterdir()) == []
    return done.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("file", [PLAN, INDEX])
def test_the_commands_for_another_kind_of_folder(tmp_path: Path, file: str, name: str) -> None:
    run, empty = tmp_path / "runs" / name, tmp_path / "empty"
    run.mkdir(parents=True)
    empty.mkdir()
    (run / file).write_text("{}")
    with pytest.raises(GavelError) as refused:
        find_existing_run(str(run), "rollout")
    found = re.findall(r"gavel \w+ (?!RUN)" + re.escape(shlex.quote(str(run))), str(refused.value))
    assert found
    for command in found:
        assert shell_words(command, empty)[2:] == [str(run)]


@pytest.mark.parametrize("name", NAMES)
def test_the_words_of_a_sweep(tmp_path: Path, name: str) -> None:
    words = (f"run.dir={name}", f"tasks.path={name}")
    told = _describe_missing(SweepIndex("train", words, ()), [SweepPoint(0, "000", ("seed=1",))])
    assert shell_words(told, tmp_path)[-3:] == [*words, "seed=1"]


@pytest.mark.parametrize("verb", ["train", "rescore"])
@pytest.mark.parametrize("name", NAMES)
def test_the_advice_on_several_values_runs_as_printed(
    tmp_path: Path, name: str, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [verb, *([name] if verb == "rescore" else []), f"into={name}", "reward.abstain=0.3,0.5"]
    assert main(words) == 2
    said = re.search(r"for a run of each: (.*); for a list", capsys.readouterr().err)
    if said is None:
        assert verb == "train"  # it has no such key
        return
    assert shell_words(said[1], tmp_path) == ["gavel", verb, *words[1:-2], "-m", *words[-2:]]


def test_no_command_is_put_together_of_unquoted_parts() -> None:
    """In every text that a module writes, a value right behind ``gavel VERB`` has passed ``shlex``."""
    bad = []
    for path in LAUNCH.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.JoinedStr):
                continue
            for before, part in zip(node.values, node.values[1:], strict=False):
                text = before.value if isinstance(before, ast.Constant) else ""
                if isinstance(part, ast.FormattedValue) and re.search(r"gavel [a-z]+ (-m … )?$", str(text)):
                    value = ast.unparse(part.value)
                    if "shlex" not in value and value not in QUOTED:
                        bad.append(f"{path.name}:{node.lineno} {value}")
    assert bad == []


QUOTED = frozenset(("word", "path", "words", "rows", "what", "near[0]", "_wrap(tail, verb.name)", "tail"))
"""Names that hold what was quoted a line before, or words of our own."""
