"""Calibration against upstream, here against stand-ins of our own that have upstream's names: what agrees and what
differs is told.

Set VERA_MH_UPSTREAM to a checkout of SpringCare/VERA-MH v1.2 (and VERA_MH_UPSTREAM_PYTHON to an interpreter that has
what it needs) to compare with the real one.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from rich.console import Console
from tests.envs.vera_mh.support import CHATBOT, DATA, JUDGE, SMALL, arguments, needs_data, reply, verdict, write_tasks
from tests.support.fault_server import FaultServer
from tests.support.runs import gavel

from gavel.envs.types import Result
from gavel.envs.vera_mh.calibrate import ComparedPart, UpstreamComparison, compare_upstream
from gavel.envs.vera_mh.config import SimulatorConfig, VeraMhConfig
from gavel.envs.vera_mh.environment import VeraMhEnvironment
from gavel.judges.assets import AssetStore
from gavel.judges.bindings import Binding
from gavel.judges.judge import BoundJudges
from gavel.judges.rubrics.table import make_rubric
from gavel.judges.types import RubricConfig
from gavel.launch.commands.calibrate import run as run_verb
from gavel.launch.compose.compose import compose_config
from gavel.launch.runs.folder import read_results
from gavel.models.errors import ConfigError, InputError

STAND_INS: Mapping[str, str] = {
    "generate_conversations/__init__.py": "",
    "generate_conversations/utils.py": """
import csv
def load_prompts_from_csv():
    template = open("data/persona_prompt_template.txt", newline="").read()
    rows = list(csv.DictReader(open("data/personas.tsv", newline=""), delimiter="\\t", quoting=csv.QUOTE_NONE))
    return [{**row, "prompt": template.format(**row)} for row in rows]
""",
    "utils/__init__.py": "",
    "utils/conversation_utils.py": """
from llm_clients.llm_interface import Role
class HumanMessage:
    def __init__(self, content): self.content = content
class AIMessage(HumanMessage): pass
def save_conversation_to_file(history, name, folder):
    with open(f"{folder}/{name}", "w", newline="") as file:
        for at, turn in enumerate(history):
            file.write(("\\n" if at else "") + ("user: " if turn["speaker"] == "persona" else "chatbot: ") + turn["response"] + "\\n")
            if turn["early_termination"]: file.write("[CONVERSATION ENDED - persona signaled termination]\\n")
def build_langchain_messages(role, history):
    made = [(AIMessage if turn["speaker"] == role.value else HumanMessage)(turn["response"]) for turn in history]
    if role is Role.PERSONA:
        made[-1].content = open("data/persona_prompt_reminder.txt").read() + made[-1].content
    return made
""",  # noqa: E501
    "llm_clients/__init__.py": "from llm_clients.llm_interface import LLMFactory",
    "llm_clients/llm_interface.py": """
import abc, enum
class Role(enum.Enum):
    PERSONA = "persona"
    PROVIDER = "provider"
class LLMFactory: pass
class JudgeLLM(abc.ABC):
    @abc.abstractmethod
    def never_asked(self): ...
""",
    "judge/__init__.py": "",
    "judge/rubric_config.py": """
class ConversationData:
    def __init__(self, content, metadata): self.content = content
class RubricConfig:
    @classmethod
    async def load(cls, folder): return cls()
""",
    "judge/llm_judge.py": """
from llm_clients import LLMFactory
NAMES = ("Detects Potential Risk", "Confirms Risk", "Guides to Human Care", "Supportive Conversation", "Follows AI Boundaries")
class Answer:
    def __init__(self, answer, reasoning): self.answer = answer
class LLMJudge:
    def __init__(self, judge_model, rubric_config, log_file): pass
    async def evaluate_conversation_question_flow(self, conversation, output_folder, auto_save):
        system = open("data/rubric_prompt_beginning.txt", newline="").read().format(conversation=conversation.content)
        model = LLMFactory.create_llm(model_name="m", system_prompt=system)
        for question in (1, 3):
            answer = await model.generate_structured_response("question %d" % question, Answer)
        rating = "Not Relevant" if answer.answer == "No" else "High Potential for Harm"
        return {name: {"score": rating, "yes_question_id": ""} for name in NAMES}
""",  # noqa: E501
    "judge/score.py": """
def score_results(path, output_path): return {"summary": {}, "aggregates": {}, "dimensions": {}}
""",
}


def checkout(folder: Path) -> Path:
    """Make a folder that has upstream's names: conversations as upstream makes them, a judge that ends after two
    questions.
    """
    for name, text in STAND_INS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "data").mkdir()
    for file in DATA.glob("*.t*"):
        shutil.copyfile(file, folder / "data" / file.name)
    return folder


def environment(tmp_path: Path, profile: str = "springcare/vera-mh-v1.2") -> VeraMhEnvironment:
    rubric = make_rubric(RubricConfig(profile), AssetStore(tmp_path / "cache", mirror=DATA, offline=True))
    judge = BoundJudges({"vera_mh": Binding("vera_mh", "general", rubric)}, lambda name: pytest.fail(name))
    return VeraMhEnvironment(VeraMhConfig(simulators=(SimulatorConfig("simulator"),)), judge, {})


def said(body: dict[str, Any]) -> Any:
    """Persona and chatbot with line ends of all kinds; the judge says No to everything."""
    if body["model"] == JUDGE:
        return verdict("No", "nothing was said")
    return f"first\r\nsecond\rthird {{x}} {len(body['messages'])}" if body["model"] == CHATBOT else reply(body)


async def finished(tmp_path: Path) -> list[Result]:
    assets = [f"assets.mirror={DATA}", f"assets.cache={tmp_path / 'cache'}", "assets.offline=true"]
    async with FaultServer(reply=said) as server:
        tasks = write_tasks(tmp_path / "t.jsonl", 3, names=("Abigail", "Skylar", "Zelda"))
        words = arguments(tasks, tmp_path / "run", server.base_url, "env.max_turns=4", *assets)
        words.remove(SMALL)
        done = await gavel(*words)
        assert done.code == 0, done.out + done.err
    return list(read_results(tmp_path / "run"))


@needs_data
async def test_what_agrees_and_what_differs_is_counted_and_named(tmp_path: Path) -> None:
    results = await finished(tmp_path)
    found = compare_upstream(environment(tmp_path), results, checkout(tmp_path / "upstream"))
    parts = {name: (part.identical, part.compared) for name, part in found.parts.items()}
    assert parts["persona prompts"] == parts["transcripts"] == parts["message lists"] == parts["ratings"] == (3, 3)
    assert parts["judge prompts"] == (0, 3)  # the stand-in words its questions in its own way
    assert parts["scores"] == (0, 3)
    assert not found.identical
    told = "\n".join(found.describe_lines())
    assert "transcripts: 3 of 3 identical" in told
    assert "judge prompts: 0 of 3 identical; different: v-0#0, v-1#0, v-2#0" in told
    assert "not a certification" in told


@needs_data
async def test_the_checkouts_files_are_compared_with_the_pinned_ones_first(tmp_path: Path) -> None:
    results = await finished(tmp_path)
    upstream = checkout(tmp_path / "upstream")
    found = compare_upstream(environment(tmp_path), results, upstream)
    assert next(iter(found.parts.items())) == ("assets", ComparedPart(6, 6))
    rubric = upstream / "data" / "rubric.tsv"
    rubric.write_bytes(rubric.read_bytes().replace(b"\r\n", b"\n"))  # as a checkout with converted line ends has it
    (upstream / "data" / "persona_prompt_reminder.txt").unlink()
    found = compare_upstream(environment(tmp_path), results, upstream)
    assert (
        found.describe_lines()[0]
        == "assets: 4 of 6 identical; different: data/rubric.tsv, data/persona_prompt_reminder.txt"
    )


@needs_data
async def test_the_verb_compares_a_finished_run_named_either_way(tmp_path: Path) -> None:
    await finished(tmp_path)
    upstream = checkout(tmp_path / "upstream")
    for words in ([str(tmp_path / "run"), "env=vera_mh"], ["env=vera_mh", f"run={tmp_path / 'run'}"]):
        done = await gavel("calibrate", *words, f"upstream={upstream}")
        assert done.code == 3, done.out + done.err
        assert "transcripts: 3 of 3 identical" in done.out
        assert "judge prompts: 0 of 3 identical" in done.out
        assert "not a certification" in done.out
    module = upstream / "judge" / "llm_judge.py"
    whole = {
        "assets",
        "persona prompts",
        "transcripts",
        "message lists",
        "judge prompts",
        "ratings",
        "yes questions",
        "scores",
    }
    assert {line.partition(":")[0] for line in done.out.splitlines()} >= whole
    module.unlink()
    done = await gavel("calibrate", "env=vera_mh", f"upstream={upstream}", f"run={tmp_path / 'run'}")
    assert done.code == 2
    assert "no checkout" in done.err


def test_the_verb_ends_with_0_only_where_all_is_identical(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for part, code in ((ComparedPart(2, 2), 0), (ComparedPart(2, 1, ("a",)), 3)):
        found = UpstreamComparison({"transcripts": part})
        monkeypatch.setattr(
            "gavel.launch.commands.calibrate.find_upstream_comparison", lambda env, found=found: lambda *_, **__: found
        )
        for name, value in (("find_existing_run", tmp_path), ("read_results", [])):
            monkeypatch.setattr(f"gavel.launch.commands.calibrate.{name}", lambda *_, value=value: value)
        config = compose_config("calibrate", ["env=vera_mh", SMALL, f"run={tmp_path}", "upstream=x", "judge=smollm2"])
        own = compose_config("rollout", ["experiment=demo_vera_mh", f"run={tmp_path}"])
        monkeypatch.setattr("gavel.launch.commands.calibrate.read_run_config", lambda path, own=own: own)
        assert run_verb(config, Console(quiet=True)) == code


@needs_data
async def test_what_upstream_cannot_do_is_told_and_the_rest_still_compared(tmp_path: Path) -> None:
    results = await finished(tmp_path)
    upstream = checkout(tmp_path / "upstream")
    (upstream / "judge" / "score.py").write_text("raise OSError('no such rubric')")
    found = compare_upstream(environment(tmp_path), results, upstream)
    assert found.parts["scores"] == ComparedPart(0, 0, (), "OSError: no such rubric")
    assert found.parts["transcripts"].whole
    assert not found.identical


@needs_data
def test_other_folders_other_rubrics_and_empty_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no checkout"):
        compare_upstream(environment(tmp_path), [], tmp_path)
    upstream = checkout(tmp_path / "upstream")
    with pytest.raises(ConfigError, match="only upstream's own rubric"):
        compare_upstream(environment(tmp_path, "gavel/vera-mh-small"), [], upstream)
    with pytest.raises(InputError, match="nothing to compare"):
        compare_upstream(environment(tmp_path), [], upstream)


@needs_data
@pytest.mark.skipif(
    "VERA_MH_UPSTREAM" not in os.environ, reason="no checkout of SpringCare/VERA-MH named in VERA_MH_UPSTREAM"
)
async def test_a_run_is_identical_to_the_real_upstream(tmp_path: Path) -> None:
    results = await finished(tmp_path)
    python = os.environ.get("VERA_MH_UPSTREAM_PYTHON", sys.executable)
    found = compare_upstream(environment(tmp_path), results, os.environ["VERA_MH_UPSTREAM"], python=python)
    assert found.identical, orjson.dumps(found.parts).decode()


def test_a_part_that_lacks_a_module_names_the_key_that_chooses_another_interpreter() -> None:
    lines = UpstreamComparison(
        {
            "scores": ComparedPart(0, 0, error="ModuleNotFoundError: No module named 'pandas'"),
            "b": ComparedPart(0, 0, error="KeyError: 1"),
        }
    ).describe_lines()
    assert "upstream_python=" in lines[0]
    assert "upstream_python=" not in lines[1]
