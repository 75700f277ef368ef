"""``gavel train`` on one machine: what is found before anything starts, the run folder, the judge beside a trainer."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from tests.launch.test_nemo_rl_launch import checkout
from tests.support.preloaded import ROOT, SOURCES
from tests.support.processes import matching, wait_until
from tests.support.runs import STRICT, write_tasks
from tests.support.slurm import Slurm
from tests.support.training import COMMON, gavel, judge_words

from gavel.envs.abstention.environment import AbstentionConfig
from gavel.envs.types import EnvironmentInfo
from gavel.launch.cli.command_line import main
from gavel.launch.commands import train
from gavel.launch.commands.status import RunProgress, count_progress, describe_state
from gavel.launch.compose.compose import compose_config
from gavel.launch.runs.sweep_index import read_index
from gavel.launch.training.attempts import read_attempts
from gavel.launch.training.preflight import check_run
from gavel.launch.training.start import prepare_run
from gavel.launch.training.sweep.run import expand_points

WHOLE = ["qualification.required=false", "hygiene_required=false", "tasks.path=pkg:envs/abstention/data/samples.jsonl"]
QWEN = [
    "env=abstention",
    "rubrics.abstention.profile=gavel/qa-abstention-v1",
    "judge=qwen3_32b",
    "trainer.prompts_per_step=24",
    *WHOLE,
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that looks like NeMo-RL's, with modules to import in it."""
    path = checkout(tmp_path / "nemo")
    for name in ("ray", "torch", "nemo_rl"):
        (path / name).mkdir()
        (path / name / "__init__.py").touch()
    (path / "nemo_rl" / "package_info.py").write_text("MAJOR = 0\nMINOR = 6\nPATCH = 0\n")
    return path


def found(words: list[str], root: Path | None, run: Path) -> str:
    """Return everything the preflight finds, as one text."""
    config = compose_config("train", [*words, f"trainer.nemo_rl_root={root or 'null'}"])
    return "\n\n".join(map(str, check_run(config, run).findings))


def test_everything_wrong_with_a_set_up_is_said_at_once_and_fast(tmp_path: Path, root: Path) -> None:
    samples = (
        (ROOT / "envs" / "vera_mh" / "data" / "samples.jsonl").read_text().splitlines()[:2]
    )  # their prompts are the same
    (tmp_path / "tasks.jsonl").write_text(
        "".join(line.replace("vera_mh/vera_mh", "vera_mh/other") + "\n" for line in samples)
    )
    (tmp_path / "manifest.json").write_text(
        json.dumps({"files": {"tasks.jsonl": {"sha256": "sha256:0"}}, "hygiene": None})
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        began = os.times()
        text = found(
            [
                "env=vera_mh",
                "rubrics.vera_mh.profile=gavel/vera-mh-small",
                "judge=qwen3_32b",
                f"tasks.path={tmp_path}/tasks.jsonl",
                "cluster.gpus_per_node=2",
                f"judge.port={port}",
                "env.max_turns=6",
                "env.simulators=[{service: simulator}]",
                "services.simulator.mode=external",
                "services.simulator.base_url=http://127.0.0.1:1/v1",
                "services.simulator.model=m",
                "services.simulator.api_key_env=GAVEL_TEST_UNSET",
                "placement.folder=/proc/nowhere/judge",
                "trainer.overrides.grpo.max_rollout_turns=2",
                "trainer.max_new_tokens=4096",
                "trainer.command=[echo]",
                "judge.max_context_length=40960",
            ],
            root,
            Path("/proc/nowhere/run"),
        )
        seconds = sum(os.times()[:4]) - sum(
            began[:4]
        )  # of the CPU, ours and our children's: whatever else the machine does
    blocks = text.split("\n\n")
    for field, needle in (
        ("tasks.path", "this file is not the one its manifest describes"),
        ("verifier", "there is no such binding"),
        ("certificates", "the judge of binding vera_mh was never probed"),
        ("judge.port", "in use"),
        ("run.dir", "nothing can be written here"),
        ("placement.folder", "nothing can be written here"),
        ("services.simulator", "GAVEL_TEST_UNSET"),
        ("grpo.max_rollout_turns", "set grpo.max_rollout_turns: 3"),
        ("tasks.path", "have the prompt of another one and a different target"),
        ("hygiene_required", "these tasks were never compared with a protected set"),
        ("trainer.max_new_tokens", "a reply of full length leaves no room for its prompt"),
        ("judge.max_context_length", "at most 24708"),
        ("trainer.command", "NeMo-RL has no use for this option"),
    ):
        assert any(field in block and needle in block for block in blocks), f"{field}: {needle} is not in\n{text}"
    assert seconds < 5


def test_training_refuses_tasks_that_were_never_compared_with_a_protected_set(tmp_path: Path, root: Path) -> None:
    source, protected = write_tasks(tmp_path / "source.jsonl", 3), tmp_path / "protected.txt"
    protected.write_text("Which town lies at kilometre 1 of the old road?\n")
    words = [*QWEN[:3], "qualification.required=false", "cluster.gpus_per_node=2", "trainer.prompts_per_step=2"]
    refused = "these tasks were never compared with a protected set"

    def findings(folder: str, name: str = "tasks.jsonl", *more: str) -> str:
        return found([*words, f"tasks.path={tmp_path}/{folder}/{name}", *more], root, tmp_path / "run")

    for folder, more in (("without", []), ("with", [f"source.protected=[{protected}]"])):
        assert main(["prepare", STRICT, f"source.path={source}", f"out={tmp_path / folder}", *more]) == 0
    assert refused in findings("without")
    assert findings("without", "tasks.jsonl", "hygiene_required=false") == ""
    assert findings("with") == ""
    assert len((tmp_path / "with" / "tasks.jsonl").read_text().splitlines()) == 2, "the protected question is gone"
    shutil.copy(tmp_path / "with" / "tasks.jsonl", tmp_path / "with" / "other.jsonl")
    assert refused in findings("with", "other.jsonl"), "the manifest does not speak of this file"
    manifest = json.loads((tmp_path / "with" / "manifest.json").read_text())
    (tmp_path / "with" / "manifest.json").write_text(
        json.dumps({**manifest, "hygiene": {"protected": [], "dropped": {}}})
    )
    assert refused in findings("with"), "compared with nothing"
    (tmp_path / "with" / "manifest.json").unlink()
    assert refused in findings("with")


def test_a_turn_cap_below_what_an_episode_takes_is_found(tmp_path: Path, root: Path) -> None:
    words = [
        "env=vera_mh",
        "rubrics.vera_mh.profile=gavel/vera-mh-small",
        "tasks.path=pkg:envs/vera_mh/data/samples.jsonl",
        *WHOLE[:2],
        "judge=external",
        "judge.base_url=http://h:9/v1",
        "judge.model=m",
        "env.max_turns=6",
        "env.simulators=[{service: simulator}]",
        "services.simulator.mode=external",
        "services.simulator.base_url=http://h:9/v1",
        "services.simulator.model=m",
        "trainer.overrides.grpo.max_rollout_turns=2",
    ]
    assert "set grpo.max_rollout_turns: 3" in found(words, root, tmp_path / "run")


def test_an_interpreter_without_the_trainers_modules_is_found_with_each_of_them(tmp_path: Path, root: Path) -> None:
    shutil.rmtree(root / "ray")
    (root / "torch" / "__init__.py").write_text("raise ImportError('no CUDA driver')")
    text = found([*QWEN, "cluster.gpus_per_node=2", "trainer.python=" + sys.executable], root, tmp_path / "run")
    assert "ray (ModuleNotFoundError" in text
    assert "torch (ImportError: no CUDA driver)" in text


def test_without_a_checkout_the_other_findings_are_still_told(tmp_path: Path) -> None:
    text = found([*QWEN[:3], "cluster.gpus_per_node=1"], None, tmp_path / "run")
    assert "no NeMo-RL is named" in text
    assert "no tasks are named" in text
    assert "none is left for the policy" in text


@pytest.mark.parametrize(
    ("words", "needle"),
    [
        (["judge.gpus=3"], "tensor parallel 3 does not divide the node's 8 GPUs"),
        (["judge.gpus=1", "judge.max_context_length=40960"], "at most 24708"),
        (["judge.gpus=2", "judge.replicas=5"], "a judge node needs 10 GPUs and has 8"),
        (["judge.gpus=2", "judge.replicas=4", "placement.mode=same_node"], "wants equal nodes"),
        (["judge.gpus=2", "placement.mode=external"], "to be served, but nowhere"),
        (["judge.gpus=2", "placement.mode=shared"], "placement.folder"),
        (["judge.gpus=2", "judge.replicas=3", "placement.nodes=2"], "cannot be shared out evenly"),
    ],
)
def test_gpus_that_do_not_add_up_are_refused_with_the_numbers(
    words: list[str], needle: str, tmp_path: Path, root: Path
) -> None:
    shape = ["cluster=slurm", "cluster.nodes=4", "placement.mode=het"]
    assert needle in found([*QWEN, *shape, *words], root, tmp_path / "run")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("placement.nodes", ["placement.mode=same_node", "placement.nodes=2"]),
        ("placement.nodes", ["placement.nodes=3"]),
        ("placement.folder", ["placement.mode=het", "cluster=slurm", "placement.folder=/f"]),
        ("placement.lease", ["placement.lease=5"]),
        ("cluster.judge.time", ["cluster.judge.time='01:00:00'"]),
        ("cluster.judge.gpus", ["cluster=slurm", "placement.mode=same_node", "cluster.judge.gpus=2"]),
        ("cluster.judge.directives", ["cluster=slurm", "cluster.judge.directives=[--x]"]),
        ("cluster.hf_home", ["cluster.hf_home=/hf"]),
    ],
)
def test_keys_of_another_placement_are_refused(key: str, words: list[str], tmp_path: Path, root: Path) -> None:
    said = found([*QWEN, "judge.gpus=1", "cluster.gpus_per_node=8", *words], root, tmp_path / "run")
    assert f"{key}: this key has no effect here" in said
    assert "no effect" not in found(
        [*QWEN, "judge.gpus=1", "cluster.gpus_per_node=8", *words[:-1]], root, tmp_path / "run"
    )


SHAPES = {
    "one GPU, the judge on the CPU": (["judge=smollm2", "cluster.gpus_per_node=1"], 1, 1),
    "one node of eight, two for the judge": (["judge=qwen3_32b", "judge.gpus=2", "cluster.gpus_per_node=8"], 1, 6),
    "four nodes of eight, and one for four replicas": (
        ["judge=qwen3_32b", "judge.gpus=2", "judge.replicas=4", "cluster.nodes=4", "placement.mode=het"], 4, 8,
    ),
}  # fmt: skip


def test_an_environment_that_declares_no_turns_is_not_trained(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AbstentionConfig, "info", EnvironmentInfo(binding="abstention"))
    text = found([*QWEN], root, tmp_path / "run")
    assert "env.name: this environment does not say how many replies an episode takes" in text
    assert "policy_turns=N" in text
    monkeypatch.setattr(AbstentionConfig, "info", EnvironmentInfo(policy_turns=1, binding="abstention"))
    assert "how many replies" not in found([*QWEN], root, tmp_path / "run")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_dry_run_shows_arithmetic_and_scripts_that_bash_and_slurm_accept(
    shape: str, slurm: Slurm, tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, nodes, gpus = SHAPES[shape]
    config = compose_config(
        "train",
        [*QWEN, "cluster=slurm", *words, f"trainer.nemo_rl_root={root}", f"run.dir={tmp_path}/run", "dry_run=true"],
    )
    checked = check_run(config, tmp_path / "run")
    assert checked.findings == ()
    assert train.run(config, Console(width=200)) == 0
    out = capsys.readouterr().out
    assert f"{nodes} x {gpus} GPUs = {nodes * gpus}" in out
    assert not (tmp_path / "run").exists(), "a dry run writes nothing"
    cluster = yaml.safe_load(checked.config_text)["cluster"]
    assert (cluster["num_nodes"], cluster["gpus_per_node"]) == (nodes, gpus)
    prepared = prepare_run(config, tmp_path / "run", checked)
    script = tmp_path / "train.sbatch"
    script.write_text(prepared.files["train.sbatch"])
    assert subprocess.run(["bash", "-n", script], capture_output=True, check=False).stderr == b""
    # The cluster of the tests has two nodes; everything but the number of nodes is asked about.
    script.write_text(script.read_text().replace("--nodes=4", "--nodes=1"))
    tested = slurm.run("sbatch", "--test-only", str(script))
    assert tested.returncode == 0, tested.stderr


def test_every_shipped_option_of_a_swept_group_has_the_same_keys() -> None:
    for group in ("trainer", "cluster"):
        options = {path.name: yaml.safe_load(path.read_text()) for path in (ROOT / "conf" / group).glob("*.yaml")}
        keys = {name: tuple(sorted(values.get(group, values))) for name, values in options.items()}
        assert len(set(keys.values())) == 1, keys


def shipped_sweeps() -> list[str]:
    """Return every training sweep that a page, the README or a config tells its reader to run."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "conf").rglob("*.yaml")]
    text = "\n".join(page.read_text().replace("\\\n", " ") for page in pages)
    found = re.findall(r"gavel train -m ([^`\n]*)", text)
    return sorted({command.partition("  #")[0].strip() for command in found if "…" not in command})


def test_every_point_of_every_shipped_sweep_composes() -> None:
    sweeps = shipped_sweeps()
    assert any("experiment=reward_ablation" in sweep for sweep in sweeps)
    for sweep in sweeps:
        words = shlex.split(sweep)
        points = expand_points(words)
        assert len(points) > 1, sweep
        for point in points:
            config = compose_config(
                "train",
                [
                    *(
                        word
                        for word in words
                        if not any(word.partition("=")[0] == one.partition("=")[0] for one in point)
                    ),
                    *point,
                ],
            )
            for word in point:
                key, _, value = word.partition("=")
                if key.startswith("reward."):
                    assert str(config.reward[key.removeprefix("reward.")]) == value


def test_values_of_a_sweep_are_those_of_hydras_grammar() -> None:
    assert expand_points(["a=1,2", "b=x", "c=range(1,3)"]) == [
        ("a=1", "c=1"),
        ("a=1", "c=2"),
        ("a=2", "c=1"),
        ("a=2", "c=2"),
    ]
    assert expand_points(["a=[1,2]", "b='x,y'"]) == []


def run_here(tmp_path: Path, *words: str, folder: str = "run", timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return gavel(
        ["train", *COMMON, *judge_words(tmp_path), f"run.dir={tmp_path / folder}", *words], tmp_path, timeout=timeout
    )


def test_a_run_here_trains_with_its_judge_and_can_be_started_by_hand(tmp_path: Path) -> None:
    done = run_here(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "step 3: 2 of 2 graded, mean reward 1.00" in done.stdout
    assert [attempt.state for attempt in read_attempts(tmp_path / "run")] == ["finished"]
    assert matching(str(tmp_path)) == []
    again = subprocess.run(
        ["bash", tmp_path / "run" / "launch.sh"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCES},
        check=False,
    )
    assert again.returncode == 0, again.stderr
    assert "starting after step 3" in (tmp_path / "run" / "logs" / "trainer-2.log").read_text()


def test_the_same_command_goes_on_and_another_config_is_refused(tmp_path: Path) -> None:
    failed = run_here(tmp_path, "trainer.overrides={steps: 4, fail_at: 3}")
    assert failed.returncode == 9
    assert "step 3 has no luck" in failed.stdout
    assert run_here(tmp_path, "trainer.overrides={steps: 4, fail_at: 3}").returncode == 9
    assert "starting after step 2" in (tmp_path / "run" / "logs" / "trainer-2.log").read_text()
    other = run_here(tmp_path, "reward.abstain=0.3")
    assert other.returncode == 2
    assert "another training run" in other.stderr


def test_a_judge_that_dies_stops_the_training_here_too(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "gavel.launch.cli",
            "train",
            *COMMON,
            *judge_words(tmp_path),
            f"run.dir={tmp_path / 'run'}",
            "trainer.overrides={steps: 1000, pause: 0.1}",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": SOURCES},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    log = tmp_path / "run" / "logs" / "trainer-1.log"
    wait_until(lambda: log.exists() and "step 2:" in log.read_text(), 30, "the second step")
    for pid in matching("vllm.entrypoints"):
        if str(tmp_path) in Path(f"/proc/{pid}/cmdline").read_bytes().decode():
            os.kill(pid, signal.SIGKILL)
    assert process.wait(60) == 4
    assert matching(str(tmp_path)) == []


def test_an_interrupt_tells_the_trainer_and_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "gavel.launch.cli",
            "train",
            *COMMON,
            *judge_words(tmp_path),
            f"run.dir={tmp_path / 'run'}",
            "trainer.overrides={steps: 1000, pause: 0.1}",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": SOURCES},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    log = tmp_path / "run" / "logs" / "trainer-1.log"
    wait_until(lambda: log.exists() and "step 2:" in log.read_text(), 30, "the second step")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130
    assert "SIGTERM: a checkpoint is there" in log.read_text()
    assert [attempt.state for attempt in read_attempts(tmp_path / "run")] == ["interrupted"]
    assert matching(str(tmp_path)) == []


def test_a_run_that_is_written_refuses_a_second_writer_and_one_that_was_killed_is_told_apart(tmp_path: Path) -> None:
    words = [
        "train",
        *COMMON,
        *judge_words(tmp_path),
        f"run.dir={tmp_path / 'run'}",
        "trainer.overrides={steps: 1000, pause: 0.1}",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "gavel.launch.cli", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": SOURCES},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    log = tmp_path / "run" / "logs" / "trainer-1.log"
    wait_until(lambda: log.exists() and "step 2:" in log.read_text(), 60, "the second step")
    assert describe_state(tmp_path / "run") == "training"
    second = gavel(words, tmp_path)
    assert second.returncode == 2
    assert f"process {process.pid}" in second.stderr
    process.kill()
    process.wait()
    wait_until(lambda: matching(str(tmp_path)) == [], 30, "the end of everything it started")
    assert describe_state(tmp_path / "run") == "it ended without a word (killed?); start it again to go on"


def test_status_reads_what_is_whole_and_names_what_is_damaged(tmp_path: Path) -> None:
    assert run_here(tmp_path, "trainer.overrides={steps: 1}").returncode == 0
    run = tmp_path / "run"
    with (run / "ledger" / "steps.jsonl").open("ab") as file:
        file.write(b'{"half\n[1]\n{"step": 9')
    (run / "attempts" / "notes.json").write_text("not an attempt")
    assert count_progress(run) == RunProgress(1, 2, 0)
    assert describe_state(run) == "finished"
    (run / "attempts" / "2.json").write_text('{"torn')
    shown = gavel(["status", str(run)], tmp_path)
    assert shown.returncode == 2
    assert "attempts/2.json: this file is damaged" in shown.stderr


def test_points_of_a_sweep_share_a_judge_and_one_that_fails_stops_no_other(tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    words = [
        *COMMON,
        *judge_words(tmp_path),
        f"run.dir={sweep}",
        "reward.abstain=0.3,0.5",
        "+trainer.overrides.fail_at=99,2",
    ]
    done = gavel(["train", "-m", *words], tmp_path)
    assert done.returncode == 3, done.stderr + done.stdout
    points = read_index(sweep).points
    assert [point.state for point in points] == ["finished", "failed", "finished", "failed"]
    for point in points:
        assert (sweep / point.name / "config.yaml").exists()
        assert yaml.safe_load((sweep / point.name / "trainer.yaml").read_text())["gavel"]["run_dir"] == str(
            sweep / point.name
        )
    (judge,) = sweep.glob("judge-*")
    wait_until(lambda: matching(str(tmp_path)) == [], 40, "the end of the judge")
    assert "nobody needs this judge any more" in (judge / "judge.out").read_text()
    assert "finished" in gavel(["status", str(sweep)], tmp_path).stdout


def test_no_secret_is_in_any_file_or_output(tmp_path: Path) -> None:
    secret = "hunter2-" + "plum" * 5
    words = [
        "services.other.mode=external",
        "services.other.base_url=http://127.0.0.1:1/v1",
        "services.other.model=m",
        "services.other.api_key_env=PLANTED",
        "judging.bindings.abstention.judge=other",
    ]
    for extra in ([], words):
        folder = f"run{len(extra)}"
        done = gavel(
            [
                "train",
                *COMMON,
                *judge_words(tmp_path),
                f"run.dir={tmp_path / folder}",
                *extra,
                "trainer.overrides={steps: 1}",
            ],
            tmp_path,
            {"PLANTED": secret},
        )
        assert (tmp_path / folder / "trainer.yaml").exists(), done.stderr
        assert secret not in done.stdout + done.stderr
    hits = [path for path in tmp_path.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert hits == []
