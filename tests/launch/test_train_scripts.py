"""The scripts of jobs in containers and on several nodes: what NeMo-RL's own script and pyxis expect, and that signals
come through.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.launch.test_nemo_rl_launch import checkout
from tests.support.preloaded import ROOT, SOURCES
from tests.support.processes import matching, wait_until
from tests.support.slurm import Slurm
from tests.support.training import COMMON, gavel, judge_words

from gavel.launch.compose.compose import compose_config
from gavel.launch.config.training_schema import ClusterConfig, JudgeJob
from gavel.launch.training.attempts import read_attempts
from gavel.launch.training.container import is_mounted
from gavel.launch.training.preflight import check_run
from gavel.launch.training.render import judge_script
from gavel.launch.training.start import prepare_run

WORDS = [
    "env=abstention", "rubrics.abstention.profile=gavel/qa-abstention-v1", "qualification.required=false", "hygiene_required=false",  # noqa: E501
    "tasks.path=pkg:envs/abstention/data/samples.jsonl", "judge=qwen3_32b", "judge.gpus=2", "judge.replicas=4",
]  # fmt: skip
JOB = ["cluster=slurm", "cluster.account=me", "placement.mode=het"]
RAY_SUB = """#!/bin/bash
set -eu
printf '%s\\n' "$CONTAINER" "$MOUNTS" "$GPUS_PER_NODE" "$COMMAND" > "$BASE_LOG_DIR/seen"
while [ ! -e "$BASE_LOG_DIR/../end" ]; do sleep 0.1; done
exit 7
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = checkout(tmp_path / "nemo")
    (path / "ray.sub").write_text(RAY_SUB)
    return path


def contained(tmp_path: Path, *more: str) -> list[str]:
    return [
        *WORDS,
        *JOB,
        "cluster.container='/images/nemo rl.sqsh'",
        f"cluster.mounts=['{tmp_path}:{tmp_path}']",
        *more,
    ]


def script(words: list[str], root: Path, run: Path) -> str:
    config = compose_config("train", [*words, f"trainer.nemo_rl_root={root}", f"run.dir={run}"])
    text = prepare_run(config, run, check_run(config, run)).files["train.sbatch"]
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return text


def test_containers_on_several_nodes_are_started_by_nemo_rls_own_script(tmp_path: Path, root: Path) -> None:
    text = script(contained(tmp_path, "cluster.nodes=4"), root, tmp_path / "run")
    assert (
        f"export CONTAINER='/images/nemo rl.sqsh' MOUNTS={tmp_path}:{tmp_path} GPUS_PER_NODE=8 "
        f'BASE_LOG_DIR="$run/logs"\n' in text
    )
    assert f"bash {root}/ray.sub &\n" in text
    assert "ray start" not in text
    judge = next(line for line in text.splitlines() if "gavel.launch.training.job judge" in line)
    assert "--container-image='/images/nemo rl.sqsh'" in judge
    assert f"--container-mounts={tmp_path}:{tmp_path}" in judge
    assert "#SBATCH --account=me" in text


READ = ("CONTAINER", "MOUNTS", "COMMAND", "GPUS_PER_NODE", "BASE_LOG_DIR", "CPUS_PER_WORKER")
"""The variables of ray.sub (7ea279ab) that we set; with a checkout they are looked for in it."""
THEIR_OPTIONS = ("--exclusive", "--account=")


def exported(tmp_path: Path, root: Path, *more: str) -> tuple[str, list[str]]:
    """Return a script of the choice for containers, and the variables it hands over."""
    words = [
        *WORDS,
        "cluster=slurm_container",
        "cluster.account=me",
        "placement.mode=het",
        f"cluster.mounts=['{tmp_path}:{tmp_path}']",
        *more,
    ]
    text = script(words, root, tmp_path / "run")
    exports = " ".join(re.findall(r"^export (.*)$", text, re.MULTILINE))
    return text, re.findall(r"(\w+)=", re.sub(r"'[^']*'", "", exports))


def test_what_is_handed_over_are_variables_that_nemo_rls_script_reads(tmp_path: Path, root: Path) -> None:
    text, names = exported(tmp_path, root, "cluster.cpus_per_task=96", f"cluster.hf_home={tmp_path}/hf")
    assert sorted(names) == sorted([*READ, "HF_HOME"])
    assert all(f"#SBATCH {option}" in text for option in THEIR_OPTIONS)
    assert "export CPUS_PER_WORKER=96\n" in text
    assert f"export HF_HOME={tmp_path}/hf\n" in text
    named = os.environ.get("NEMO_RL_ROOT")
    if named and (Path(named) / "ray.sub").is_file():
        theirs = (Path(named) / "ray.sub").read_text()
        for variable in READ:
            assert re.search(rf"\${variable}\b|\${{{variable}:-", theirs), variable
        for option in THEIR_OPTIONS:
            assert f"#SBATCH {option}" in theirs, option


def test_the_pages_way_of_four_nodes_with_a_container_is_one_that_is_rendered(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (
        (ROOT / "docs" / "slurm.md")
        .read_text(encoding="utf-8")
        .partition("## Four nodes of eight GPUs in a container")[2]
    )
    commands = page.partition("```bash\n")[2].partition("```")[0].replace("\\\n", "").replace("/shared", str(tmp_path))
    (tmp_path / "RL").symlink_to(root)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEMO_RL_ROOT", str(tmp_path / "RL"))
    told = [shlex.split(line, comments=True)[1:] for line in commands.splitlines() if line.startswith("gavel ")]
    assert [words[0] for words in told] == ["doctor", "prepare", "probe", "train"]
    composed = {words[0]: compose_config(words[0], words[1:]) for words in told}
    run, config = tmp_path / "runs" / "first", composed["train"]
    checked = check_run(config, run)
    missing = {"tasks.path", "validation.path", "certificates", "gavel itself"}  # ours lies where this test was started
    assert {str(one).partition(": ")[0].partition("/")[0] for one in checked.findings} == missing, checked.findings
    asked, probed = (composed[verb].judge for verb in ("train", "probe"))
    assert (asked.model, asked.quantization, asked.gpus) == (probed.model, probed.quantization, probed.gpus)
    text = prepare_run(config, run, checked).files["train.sbatch"]
    parts = text.partition("#SBATCH hetjob")
    assert [f"#SBATCH --nodes={count}" in part for count, part in ((4, parts[0]), (1, parts[2]))] == [True, True]
    assert f"export CONTAINER={tmp_path}/nemo-rl.sqsh MOUNTS={tmp_path}:{tmp_path} GPUS_PER_NODE=8" in text
    assert f"bash {tmp_path}/RL/ray.sub &" in text


def test_without_a_number_of_cores_nemo_rls_script_takes_those_of_whole_nodes(tmp_path: Path, root: Path) -> None:
    text, names = exported(tmp_path, root)
    assert "CPUS_PER_WORKER" not in names
    assert text.count("#SBATCH --exclusive") == 2, "both parts of the job"


def test_a_signal_reaches_a_trainer_behind_nemo_rls_script_as_a_file(tmp_path: Path, root: Path) -> None:
    run = tmp_path / "run"
    (run / "logs").mkdir(parents=True)
    words = [
        *contained(tmp_path, "cluster.nodes=2", f"cluster.python={sys.executable}"),
        "placement.mode=external",
        "judge=external",
    ]
    text = script(
        [
            *words[: words.index("judge=qwen3_32b")],
            *JOB[:2],
            *words[words.index("cluster.account=me") + 2 :],
            "judge.base_url=http://h:9/v1",
            "judge.model=m",
        ],
        root,
        run,
    )
    (run / "train.sbatch").write_text(text)
    process = subprocess.Popen(["bash", run / "train.sbatch"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: (run / "logs" / "seen").exists(), 20, "the start of ray.sub")
    seen = (run / "logs" / "seen").read_text().splitlines()
    assert seen[:3] == ["/images/nemo rl.sqsh", f"{tmp_path}:{tmp_path}", "8"]
    assert seen[3] == f"{sys.executable} -m gavel.launch.training.job train {run} --end-file {run}/end"
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 7
    assert (run / "end").exists()


def test_the_end_file_ends_a_training_as_a_signal_does(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["train", *COMMON, *judge_words(tmp_path), f"run.dir={run}"]
    assert gavel([*words, "trainer.overrides={steps: 1000, fail_at: 1}"], tmp_path).returncode == 9  # makes the folder
    config = run / "trainer.yaml"
    config.write_text(config.read_text().replace("fail_at: 1", "pause: 0.1"))
    process = subprocess.Popen(
        [sys.executable, "-m", "gavel.launch.training.job", "train", str(run), "--end-file", str(run / "end")],
        env={**os.environ, "PYTHONPATH": SOURCES},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    log = run / "logs" / "trainer-2.log"
    wait_until(lambda: log.exists() and "step 2:" in log.read_text(), 60, "the second step")
    (run / "end").touch()
    assert process.wait(60) == 130
    assert "SIGTERM: a checkpoint is there" in log.read_text()
    assert [attempt.state for attempt in read_attempts(run)] == ["failed", "interrupted"]
    assert matching(str(tmp_path)) == []


UNSEEN = "the container does not see this place"


def found_of(words: list[str], root: Path, run: Path) -> tuple[str, ...]:
    config = compose_config("train", [*words, f"trainer.nemo_rl_root={root}"])
    return tuple(map(str, check_run(config, run).findings))


def fields(found: tuple[str, ...], text: str = UNSEEN) -> list[str]:
    return [one.partition(": ")[0] for one in found if text in one]


def test_places_that_a_container_does_not_see_are_found(tmp_path: Path, root: Path) -> None:
    shutil.copy(ROOT / "envs" / "abstention" / "data" / "samples.jsonl", tmp_path / "tasks.jsonl")
    model = tmp_path / "models" / "mine"
    words = contained(
        tmp_path,
        "cluster.nodes=2",
        f"cluster.mounts=['{tmp_path}:/elsewhere','{root}']",
        f"tasks.path={tmp_path}/tasks.jsonl",
        f"trainer.model={model}",
        f"judge.model={model}",
        f"cluster.hf_home={tmp_path}/hf",
    )
    found = fields(found_of(words, root, tmp_path / "run"))
    assert found == [
        "run.dir",
        "tasks.path",
        "the working directory, in which the job begins",
        "trainer.model",
        "judge.model",
        "cluster.python",
        "gavel itself",
    ]
    (root / "ray.sub").unlink()
    assert any("ray.sub" in one for one in found_of(words, root, tmp_path / "run"))


@pytest.mark.parametrize(
    ("mounts", "seen"),
    [
        (("/a:/a",), True),
        (("/a",), True),
        (("/a/b/:/a/b/:ro",), True),
        (("/a:/a:ro",), True),
        ((), False),
        (("/a:/x",), False),
        (("/x:/a",), False),
        (("/ab:/ab",), False),
        (("/a:/a", "/x:/a/b"), False),
        (("/x:/a", "/a/b:/a/b"), True),
        (("/:/",), True),
    ],
)
def test_a_place_is_seen_where_its_innermost_mount_is_one_to_its_own_name(
    mounts: tuple[str, ...], *, seen: bool
) -> None:
    assert is_mounted(Path("/a/b/c"), mounts) == seen


def test_an_interpreter_of_the_image_needs_no_mount_and_no_sources(tmp_path: Path, root: Path) -> None:
    found = found_of(
        contained(tmp_path, "cluster.nodes=2", "cluster.python=/opt/nemo_rl_venv/bin/python"), root, tmp_path / "run"
    )
    assert {"cluster.python", "gavel itself"}.isdisjoint(fields(found))
    ours = found_of(contained(tmp_path, "cluster.nodes=2"), root, tmp_path / "run")
    assert {"cluster.python", "gavel itself"} <= set(fields(ours))


def test_models_of_the_hub_need_a_home_that_the_container_sees(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HOME", raising=False)
    words = contained(tmp_path, "cluster.nodes=2", "trainer.model=Qwen/Qwen3-1.7B")
    assert fields(found_of(words, root, tmp_path / "run"), "the container has no home") == ["cluster.hf_home"]
    assert "cluster.hf_home" in fields(found_of([*words, "cluster.hf_home=/elsewhere"], root, tmp_path / "run"))
    for more in ("cluster.hf_home=" + str(tmp_path / "hf"), "cluster.setup=['export HF_HOME=/raid']"):
        found = found_of([*words, more], root, tmp_path / "run")
        assert not any("cluster.hf_home" in one for one in found)


def test_nemo_rls_script_wants_whole_nodes_and_an_account(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SBATCH_ACCOUNT", raising=False)
    words = [word for word in contained(tmp_path, "cluster.nodes=2") if word != "cluster.account=me"]
    found = found_of(words, root, tmp_path / "run")
    assert fields(found, "ray.sub") == ["cluster.exclusive", "cluster.account"]
    enough = found_of([*words, "cluster.exclusive=true", "cluster.directives=['-A us']"], root, tmp_path / "run")
    assert fields(enough, "ray.sub") == []
    assert fields(found_of([*words, "cluster.nodes=1"], root, tmp_path / "run"), "ray.sub") == []


def test_one_node_with_a_container_starts_the_trainer_in_it(tmp_path: Path, root: Path) -> None:
    text = script(contained(tmp_path), root, tmp_path / "run")
    (line,) = (line for line in text.splitlines() if "gavel.launch.training.job train" in line)
    assert line.startswith('srun --het-group=0 --overlap --nodes=1 --ntasks=1 -w "$SLURMD_NODENAME" --container-image=')
    assert "--no-container-mount-home" in line
    assert "ray.sub" not in text


@pytest.mark.timeout(240)
def test_on_several_nodes_without_a_container_ray_runs_on_each_and_ends_with_the_job(
    slurm: Slurm, tmp_path: Path
) -> None:
    root, fakes, run = (
        checkout(tmp_path / "nemo", script="raise SystemExit('no trainer here')"),
        tmp_path / "fakes",
        tmp_path / "run",
    )
    for name in ("ray", "torch", "nemo_rl"):
        (root / name).mkdir()
        (root / name / "__init__.py").touch()
    fakes.mkdir()
    (fakes / "ray").write_text(f'#!/bin/sh\necho "$SLURMD_NODENAME $*" >> {tmp_path}/ray.log\nexec sleep 600\n')
    (fakes / "ray").chmod(0o755)
    words = [
        "judge=smollm2",
        "placement.mode=het",
        "cluster=slurm",
        "cluster.time=null",
        "cluster.nodes=2",
        *WORDS[:5],
        "trainer.prompts_per_step=8",
        *judge_words(tmp_path),
        f"cluster.setup=['export PATH={fakes}:$PATH']",
    ]
    done = gavel(["train", *words, f"trainer.nemo_rl_root={root}", f"run.dir={run}"], tmp_path, slurm.environment)
    assert done.returncode == 0, done.stderr + done.stdout
    log = tmp_path / "ray.log"
    wait_until(lambda: log.exists() and len(log.read_text().splitlines()) == 2, 60, "Ray on both nodes")
    wait_until(lambda: not slurm.queue(), 90, "the end of the job")
    lines = {line.split()[0]: line for line in log.read_text().splitlines()}
    (head,) = (node for node, line in lines.items() if "--head" in line)
    (worker,) = (line for node, line in lines.items() if node != head)
    assert "--port=6379 --num-gpus=8" in lines[head]
    assert ":6379 --block --num-gpus=8" in worker
    for line in lines.values():
        assert json.loads(line.partition("--resources=")[2]) == {"worker_units": 8, "slurm_managed_ray_cluster": 1}
    assert [attempt.state for attempt in read_attempts(run)] == ["failed"], "the stand-in has no trainer"
    wait_until(lambda: matching(str(tmp_path)) == [], 20, "the end of every process")


OPTIONS = ("plain", "two words", 'say "hi"', "it's", "back\\slash", "number #1", "a\tb", "ünï")


def test_options_of_sbatch_are_read_as_they_were_written(slurm: Slurm, tmp_path: Path) -> None:
    for number, text in enumerate(OPTIONS):
        cluster = ClusterConfig("slurm", gpus_per_node=0, comment=text, directives=("--hold",))
        script = tmp_path / f"{number}.sbatch"
        script.write_text(judge_script(cluster, 1, tmp_path / "judge", tmp_path))
        job = slurm.run("sbatch", "--parsable", str(script)).stdout.strip()
        assert slurm.run("squeue", "-h", "-j", job, "-o", "%k").stdout.rstrip("\n") == text
        slurm.run("scancel", job)


def test_a_judge_of_its_own_is_asked_for_with_what_cluster_judge_names(tmp_path: Path, root: Path) -> None:
    judge = JudgeJob(partition="inference", time="08:00:00", gpus=4, account="us", directives=())
    cluster = ClusterConfig(
        "slurm",
        gpus_per_node=8,
        account="me",
        partition="train",
        qos="high",
        time="04:00:00",
        judge=judge,
        directives=("--reservation=mine",),
    )
    lines = judge_script(cluster, 2, tmp_path / "judge", tmp_path).splitlines()
    for wanted in (
        "--nodes=2",
        "--gres=gpu:4",
        "--account=us",
        "--partition=inference",
        "--qos=high",
        "--time=08:00:00",
    ):
        assert f"#SBATCH {wanted}" in lines
    assert not any("reservation" in line for line in lines)
    words = contained(
        tmp_path, "cluster.judge.partition=inference", "cluster.judge.gpus=4", "cluster.judge.time='08:00:00'"
    )
    het = script(words, root, tmp_path / "run").partition("#SBATCH hetjob")
    assert "--partition" not in het[0]
    assert "#SBATCH --partition=inference" in het[2]
    assert "#SBATCH --gres=gpu:8" in het[0]
    assert "#SBATCH --gres=gpu:4" in het[2]
    assert "08:00:00" not in het[2], "the parts of one job end together"
