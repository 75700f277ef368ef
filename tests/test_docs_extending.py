"""docs/extending.md: each recipe is applied to a copy of the tree as it stands there, touches as few files as it says,
and works.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
FOLDERS = ("models", "judges", "envs", "launch", "conf", "slurm", "src")
RECIPES = {name: text for name, _, text in (part.partition("\n") for part in PAGE.split("\n## ")[1:])}

USES = {
    "A check": """
import gavel
assert gavel.check_instruction("a; b", "punctuation:max_semicolons", {"most": 1}).passed
assert not gavel.check_instruction("a; b; c", "punctuation:max_semicolons", {"most": 1}).passed
row = {"prompt": "x", "instructions": [{"uid": 1, "instruction_id": "punctuation:max_semicolons", "most": 1, "source": "user",
                                        "is_misalignment_check": False}]}
assert gavel.grade(row, "a; b; c", "env=instruction_following").reward.value == 0.0
from gavel.envs.instruction_following.documentation import make_fast_table
assert "punctuation:max_semicolons" in make_fast_table()
""",  # noqa: E501
    "A language": """
import gavel
assert gavel.check_instruction("Dit is goed. Dat ook.", "change_case:first_letter_sentence", {}, "nl").passed
""",
    "A rubric": """
from gavel.judges.assets import AssetsConfig
from gavel.judges.rubrics.table import make_rubric
from gavel.judges.types import RubricConfig
rubric = make_rubric(RubricConfig("example/short-answers-v1"), AssetsConfig().make_store())
assert (rubric.parse("Yes.").label, len(rubric.controls) >= 8) == ("correct", True)
assert "Kenya" in rubric.render({"question": "Capital of Kenya?", "reference": "Nairobi", "answer": "Nairobi"})[0].content
from gavel.launch.cli import main
assert main(["list", "rubrics"]) == 0
""",  # noqa: E501
    "A reward": """
import gavel
from gavel.envs.registry import make_reward, reward_names
assert "known" in reward_names("abstention")
grader = gavel.Grader("env=abstention", "reward=known", "reward.correct=2")
assert make_reward({"name": "known", "correct": 2.0}).reward(gavel.Outcome("correct")).value == 2.0
""",
    "An environment": """
import os, sys
from gavel.launch.cli import main
assert main(["new", "env", "my_quiz", "into=scratch"]) == 0
sys.path.insert(0, os.path.abspath("scratch"))
import my_quiz
""",
    "A trainer": """
from gavel.launch.compose.compose import compose_config
config = compose_config("train", ["trainer=my_trainer", "env=instruction_following", "judge=none"])
assert (config.trainer.kind, config.trainer.model) == ("command", "my-model")
import contextlib, io
from gavel.launch.cli import main
tasks = "tasks.path=pkg:envs/interfaces/trl/data/brevity.jsonl"
words = ["train", "trainer=quick", "env=instruction_following", "judge=none", "reward=all", tasks, "run.dir=runs/quick",
         "hygiene_required=false", "dry_run=true"]
with contextlib.redirect_stdout(io.StringIO()) as told:
    assert main(words) == 0
assert "-m quick" in told.getvalue() and "trainer.yaml" in told.getvalue(), told.getvalue()
with contextlib.redirect_stderr(io.StringIO()) as told:
    assert main([*words, "trainer.model=null"]) == 2
assert "no policy is named" in told.getvalue(), told.getvalue()
from gavel.launch.training.progress import plan_steps
assert plan_steps({"gavel": {"kind": "quick"}}).steps == 5
""",
    "A verb": """
from gavel.launch.cli import main
assert main(["count", "--help"]) == 0
assert main(["count", "nowhere"]) == 2
assert main(["count", "run.dri=x"]) == 2
""",
}
"""What a reader does with each."""
MOST = {"A check": 2, "A language": 1, "A rubric": 2, "A reward": 3, "An environment": 0, "A trainer": 4, "A verb": 3}
"""Files that a recipe touches; the check's generated page is one more."""


def changes(recipe: str) -> Mapping[str, list[str]]:
    """Return the lines of the diffs of a recipe, by file."""
    found: dict[str, list[str]] = {}
    for block in re.findall(r"```diff\n(.*?)```", RECIPES[recipe], re.DOTALL):
        for part in re.split(r"^--- .*\n\+\+\+ b/", block, flags=re.MULTILINE)[1:]:
            name, *lines = part.splitlines()
            found[name] = lines
    return found


def apply(text: str, lines: list[str]) -> str:
    """Add the ``+`` lines of each hunk above or below its one line of context, which stands behind those before."""
    if "@@" not in lines:
        return "".join(f"{line[1:]}\n" for line in lines)
    old, done = text.splitlines(), list[str]()
    for hunk in "\n".join(lines).split("@@\n")[1:]:
        rows = hunk.splitlines()
        added = [row[1:] for row in rows if row.startswith("+")]
        (anchor,) = [row[1:] for row in rows if row.startswith(" ")]
        place = old.index(anchor) + (not rows[0].startswith("+"))
        done, old = [*done, *old[:place], *added], old[place:]
    return "\n".join([*done, *old]) + "\n"


RUN = """
import json, sys, traceback
found = {}
for name, code in json.load(sys.stdin).items():
    try:
        exec(code, {})
    except BaseException:
        found[name] = traceback.format_exc()
json.dump(found, open("found.json", "w"))
"""
"""Uses all of them in one process, which saves the time that imports take."""


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What failed in a copy of the tree with every recipe applied, by recipe."""
    copy = tmp_path_factory.mktemp("tree")
    for folder in FOLDERS:
        shutil.copytree(
            ROOT / folder, copy / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    for recipe in RECIPES:
        for name, lines in changes(recipe).items():
            file = copy / name
            file.write_text(apply(file.read_text() if file.exists() else "", lines))
    env = {"PYTHONPATH": str(copy / "src"), "PATH": "/usr/bin:/bin", "HOME": str(copy)}
    subprocess.run(
        [sys.executable, "-c", RUN], cwd=copy, env=env, input=json.dumps(USES), text=True, timeout=250, check=True
    )
    return {str(name): str(why) for name, why in json.loads((copy / "found.json").read_text()).items()}


def test_the_page_has_a_recipe_for_each_kind_and_each_touches_as_few_files_as_it_says() -> None:
    assert list(RECIPES) == list(USES)
    assert {name: len(changes(name)) for name in RECIPES} == MOST


@pytest.mark.parametrize("recipe", USES)
def test_a_recipe_works_as_written(recipe: str, failed: Mapping[str, str]) -> None:
    assert failed.get(recipe, "") == ""
