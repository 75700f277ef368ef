"""Preparing a source: nothing from bad rows, equal questions on one side, protected questions out, all of it in the
manifest.
"""

import hashlib
import os
import pickle
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.envs.test_tasks import ENV, EXAMPLE, nemo

from gavel.envs.abstention.target import AbstentionTarget
from gavel.envs.hygiene import Protected, compute_question_share
from gavel.envs.preparing import PrepareError, PrepareReport, prepare_tasks
from gavel.envs.tasks import read_tasks
from gavel.models.errors import ConfigError, InputError

PROFILES = {"abstention": "nvidia/qa-abstention-v1"}
LONG = "in the year when the old bridge over the river was finally rebuilt after the great flood"  # 17 words


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def run(tmp_path: Path, *rows: dict[str, Any], **options: Any) -> tuple[PrepareReport, list[str]]:
    path = write(tmp_path / "source.jsonl", *rows)
    warned: list[str] = []
    config = {"name": "nemo_abstention_v1", "path": str(path), **options}
    return prepare_tasks(config, tmp_path / "out", profiles=PROFILES, warn=warned.append), warned


def manifest(tmp_path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = orjson.loads((tmp_path / "out" / "manifest.json").read_bytes())
    return loaded


@pytest.mark.skipif(not EXAMPLE.is_file(), reason="the five real rows are not here (../shared/data/abstention)")
def test_the_real_rows_are_prepared_and_read_back(tmp_path: Path) -> None:
    report = prepare_tasks(
        {"name": "nemo_abstention_v1", "path": str(EXAMPLE)}, tmp_path / "out", profiles=PROFILES, warn=lambda _: None
    )
    assert (report.rows, report.train, report.domains) == (5, 5, {"general": 1, "health": 1, "law": 1, "software": 2})
    read, adapted = read_tasks(tmp_path / "out" / "tasks.jsonl", ENV), read_tasks(EXAMPLE, ENV)
    assert [planned.task for planned in read.tasks] == [planned.task for planned in adapted.tasks]


def test_the_verifier_is_exported_under_the_name_that_tasks_carry(tmp_path: Path) -> None:
    run(tmp_path, nemo())
    verifiers = orjson.loads((tmp_path / "out" / "verifiers.json").read_bytes())
    assert verifiers == {
        "nemo_abstention_v1/abstention": {
            "kind": "NamedJudgeVerifier",
            "binding": "abstention",
            "profile": "nvidia/qa-abstention-v1",
            "target": "nemo_abstention_v1",
        }
    }
    assert read_tasks(tmp_path / "out" / "tasks.jsonl", ENV).tasks[0].task.verifier in verifiers


def test_bad_rows_are_refused_all_at_once_and_nothing_is_written(tmp_path: Path) -> None:
    rows = [nemo(id=str(index), answer=None) for index in range(25)]
    with pytest.raises(PrepareError) as refused:
        run(tmp_path, nemo(id="good"), *rows)
    assert len(refused.value.errors) == 25
    assert str(refused.value).count("source.jsonl:") == 21, "20 rows and the file itself"
    assert "source.jsonl:2: answer" in str(refused.value)
    assert "and 5 more" in str(refused.value)
    assert not (tmp_path / "out").exists()
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), len(again.errors)) == (str(refused.value), 25)


def test_duplicate_ids_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PrepareError, match="lines 1 and 2"):
        run(tmp_path, nemo(id="a"), nemo(id="a"))


def test_the_licence_statements_are_kept_with_their_discrepancy_and_warned_of_before_writing(tmp_path: Path) -> None:
    path = write(tmp_path / "source.jsonl", nemo())
    seen: list[bool] = []
    warned: list[str] = []

    def warn(text: str) -> None:
        warned.append(text)
        seen.append((tmp_path / "out").exists())

    prepare_tasks({"name": "nemo_abstention_v1", "path": str(path)}, tmp_path / "out", profiles=PROFILES, warn=warn)
    assert seen
    assert not any(seen), "each warning comes before the first byte"
    licence = manifest(tmp_path)["licence"]
    assert licence["statements"] == {"dataset card": "CC BY 4.0", "rows": "CC BY-SA 4.0"}
    assert "CC BY 4.0" in warned[0]
    assert "CC BY-SA 4.0" in licence["warning"]


def test_rows_of_ones_own_are_not_said_to_be_under_the_publishers_licence(tmp_path: Path) -> None:
    _, warned = run(tmp_path, nemo(id="q1"), nemo(id=None, question="Who wrote “Egmont”?"))
    assert not any("licence" in text or "CC BY" in text for text in warned)
    assert manifest(tmp_path)["licence"] == {"statements": {}, "warning": ""}
    _, warned = run(tmp_path, nemo(id="q1"), nemo(id="go-swe-00484", question="Who wrote “Egmont”?"))
    assert any("as their ids say" in text for text in warned)


def test_a_row_without_a_prompt_is_refused_with_the_form_it_wants(tmp_path: Path) -> None:
    with pytest.raises(PrepareError) as refused:
        run(tmp_path, {"question": "Who wrote “Faust”?", "answer": "Goethe"})
    text = str(refused.value)
    assert "responses_create_params.input: this field is missing" in text
    assert "the fields answer, question" in text
    assert '{"input": [{"role": "user", "content": "…"}]}' in text


def test_the_row_that_the_page_shows_is_one_that_can_be_prepared(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "prepare.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    report, _ = run(tmp_path, orjson.loads(text))
    assert (report.rows, report.train) == (1, 1)


def test_the_manifest_counts_and_digests_what_was_written(tmp_path: Path) -> None:
    run(tmp_path, nemo(id="law-1"), nemo(id="health-1"))
    made = manifest(tmp_path)
    assert made["counts"] == {"rows": 2, "train": 2, "validation": 0, "dropped": {}}
    assert made["domains"] == {"health": 1, "law": 1}
    assert set(made["files"]) == {"tasks.jsonl", "verifiers.json"}
    for name, entry in made["files"].items():
        assert entry["sha256"] == f"sha256:{hashlib.sha256((tmp_path / 'out' / name).read_bytes()).hexdigest()}"
    source = (tmp_path / "source.jsonl").read_bytes()
    assert made["source"]["sha256"] == f"sha256:{hashlib.sha256(source).hexdigest()}"


def test_equal_questions_never_straddle_the_split(tmp_path: Path) -> None:
    twins = [(index, twin) for index in range(200) for twin in (0, 1)]
    rows = [
        nemo(id=f"{index}-{twin}", question=f"Question {index}{'?' * twin}", answer=str(twin)) for index, twin in twins
    ]
    report, _ = run(tmp_path, *rows, validation_fraction=0.3)
    files = {name: read_tasks(tmp_path / "out" / name, ENV) for name in ("tasks.jsonl", "validation.jsonl")}
    sides = {name: {task_question(planned) for planned in file.tasks} for name, file in files.items()}
    assert not sides["tasks.jsonl"] & sides["validation.jsonl"]
    assert report.train + report.validation == 400
    assert 56 <= report.validation <= 184, "30 % of 200 questions, give or take five standard deviations"
    assert report.validation % 2 == 0


def task_question(planned: Any) -> str:
    target: AbstentionTarget = planned.task.target
    return target.question.rstrip("?")


def test_the_split_is_the_same_wherever_it_is_made() -> None:
    assert compute_question_share("Who wrote “Faust”?") == compute_question_share("who wrote FAUST")
    assert 0.0 <= compute_question_share("") < 1.0
    # The first 8 bytes of SHA-256("who wrote faust") as a fraction of 2**64.
    assert (
        compute_question_share("who wrote faust")
        == int(hashlib.sha256(b"who wrote faust").hexdigest()[:16], 16) / 2**64
    )


def test_protected_questions_are_dropped_by_text_and_by_13_words_and_named(tmp_path: Path) -> None:
    protected = tmp_path / "protected.jsonl"
    write(protected, {"question": "Who wrote Faust"}, {"problem": f"Tell me, who was mayor {LONG}?"})
    rows = [
        nemo(id="same", question="WHO wrote “Faust”?!"),
        nemo(id="gram", question=f"Which bank paid {LONG}, and why?"),
        nemo(id="few", question="Which bank paid in the year when the old bridge over the river fell?"),
        nemo(id="free", question="Who wrote Faust and when?"),
    ]
    report, _ = run(tmp_path, *rows, protected=[str(protected)])
    assert report.dropped == {"text": ("same",), "13-gram": ("gram",)}
    assert [planned.task.task_id for planned in read_tasks(tmp_path / "out" / "tasks.jsonl", ENV).tasks] == [
        "few",
        "free",
    ]
    hygiene = manifest(tmp_path)["hygiene"]
    assert hygiene["dropped"] == {"text": {"count": 1, "ids": ["same"]}, "13-gram": {"count": 1, "ids": ["gram"]}}
    assert (hygiene["protected"][0]["path"], hygiene["protected"][0]["questions"]) == (str(protected), 2)


def test_thirteen_words_in_common_match_and_twelve_do_not(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text(" ".join(f"w{index}" for index in range(13)) + "\n")
    protected = Protected([str(tmp_path / "p.txt")])
    assert protected.match_question("x " + ", ".join(f"W{index}" for index in range(13)) + " y") == "13-gram"
    assert protected.match_question("x " + " ".join(f"w{index}" for index in range(12)) + " y") is None


def test_without_protected_files_there_is_no_hygiene_result_and_a_warning(tmp_path: Path) -> None:
    _, warned = run(tmp_path, nemo())
    assert manifest(tmp_path)["hygiene"] is None
    assert any("source.protected" in text for text in warned)


def test_a_protected_file_of_our_own_tasks_or_without_questions(tmp_path: Path) -> None:
    run(tmp_path, nemo(question="Who?"))
    assert Protected([str(tmp_path / "out" / "tasks.jsonl")]).match_question("who") == "text"
    bad = write(tmp_path / "bad.jsonl", {"question": "a"}, {"other": 1})
    with pytest.raises(InputError) as refused:
        Protected([str(bad)])
    assert refused.value.where.endswith("bad.jsonl:2")


def test_a_dry_run_checks_all_and_writes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "source.jsonl", nemo())
    report = prepare_tasks(
        {"name": "nemo_abstention_v1", "path": str(path)},
        tmp_path / "out",
        profiles=PROFILES,
        warn=lambda _: None,
        dry_run=True,
    )
    assert (report.train, report.files, (tmp_path / "out").exists()) == (1, (), False)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"name": "nemo_abstention_v2"}, "source.name"),
        ({"pth": "x"}, "source.pth"),
        ({"path": None}, "source.path"),
        ({"dataset": "a/b"}, "source.path"),
        ({"path": None, "dataset": "a/b"}, "source.revision"),
        ({"path": None, "dataset": "a/b", "revision": "main"}, "source.revision"),
        ({"validation_fraction": 1.0}, "source.validation_fraction"),
        ({"binding": "other"}, "source.binding"),
    ],
)
def test_a_source_config_that_does_not_fit_is_refused_by_key(
    tmp_path: Path, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        run(tmp_path, nemo(), **options)
    assert refused.value.field == field
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_a_named_error_and_leaves_no_part_behind(tmp_path: Path) -> None:
    path = write(tmp_path / "source.jsonl", nemo())
    out = tmp_path / "out"
    (out / "verifiers.json.part").mkdir(parents=True)  # in the way of the second file
    with pytest.raises(InputError, match="cannot be written"):
        prepare_tasks({"name": "nemo_abstention_v1", "path": str(path)}, out, profiles=PROFILES, warn=lambda _: None)
    assert [file.name for file in out.iterdir()] == ["verifiers.json.part"]


class Hub(BaseHTTPRequestHandler):
    """A hub with one file of one data set at one revision."""

    revision = "a" * 40
    data = orjson.dumps(nemo()) + b"\n"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        known = self.path == f"/datasets/owner/set/resolve/{self.revision}/data/train.jsonl"
        self.send_response(200 if known else 404)
        self.send_header("ETag", '"one"')
        self.send_header("X-Repo-Commit", self.revision)
        self.send_header("X-Error-Code", "EntryNotFound")
        self.send_header("Content-Length", str(len(self.data) if known else 0))
        self.end_headers()
        if known and self.command == "GET":
            self.wfile.write(self.data)

    do_GET = do_HEAD


@pytest.mark.parametrize(("revision", "printed"), [("a" * 40, "1"), ("b" * 40, "cannot be downloaded")])
def test_a_data_set_comes_from_the_hub_at_its_revision(tmp_path: Path, revision: str, printed: str) -> None:
    pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed (extra data)")
    code = (
        "import sys; from gavel.envs.preparing import prepare_tasks; from gavel.models.errors import InputError\n"
        f"source = dict(name='nemo_abstention_v1', dataset='owner/set', revision={revision!r})\n"
        f"try: print(prepare_tasks(source, {str(tmp_path / 'out')!r}, profiles={PROFILES}, warn=lambda _: "
        f"None).train)\n"
        "except InputError as failed: print(failed.problem)\n"
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        # The hub's client reads these once, when it is imported: hence a process of its own.
        settings = {
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
            "HF_HOME": str(tmp_path / "home"),
            "NO_PROXY": "127.0.0.1",
        }
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        server.shutdown()
    assert printed in done.stdout
