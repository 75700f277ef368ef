"""Exports show a run elsewhere; whatever goes wrong there, the run and its exit code stay as they are."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.fault_server import FaultServer
from tests.support.runs import arguments, gavel, reply, write_tasks

from gavel.launch.cli.command_line import main
from gavel.launch.config.schema import ExportConfig, MlflowExport, WandbExport
from gavel.launch.report.trackers.payload import make_payload
from gavel.launch.report.trackers.start import export_run
from gavel.launch.runs.manifest import read_manifest

needs_wandb = pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="needs the extra `wandb`")
needs_mlflow = pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="needs the extra `mlflow`")
SECRET = "hunter2-of-the-test"


@pytest.fixture
async def run(tmp_path: Path) -> Path:
    """A small run, whose config names a header's variable and whose texts must stay here."""
    async with FaultServer(reply=reply) as server:
        words = arguments(write_tasks(tmp_path / "t.jsonl", 4), tmp_path / "run", server.base_url)
        done = await gavel(*words, "policy.default_headers={x-note: plain-words}")
    assert done.code == 0, done.out + done.err
    return tmp_path / "run"


@contextlib.asynccontextmanager
async def _hanging() -> AsyncIterator[int]:
    """A server that takes every connection and never answers; yields its port."""
    async with asyncio.timeout(60), await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_what_is_exported_are_figures_and_the_config_and_no_text(run: Path) -> None:
    config = (run / "config.yaml").read_text()
    config = config.replace("x-note: plain-words", f"x-api-key: {SECRET}").replace(
        "http://127.0.0.1", f"http://me:{SECRET}@127.0.0.1"
    )
    (run / "config.yaml").write_text(config)
    manifest = read_manifest(run)
    assert manifest is not None
    payload = make_payload(run, manifest)
    shown = orjson.dumps(payload).decode()
    assert SECRET in config
    assert SECRET not in shown
    for text in ("Which town lies", "old road", "It is", "boxed"):
        assert text not in shown
    metrics = orjson.loads((run / "metrics.json").read_bytes())
    assert payload.numbers["reward"] == metrics["reward"]["value"] == 0.5
    assert payload.numbers["reward_low"] == metrics["reward"]["low"]
    assert payload.numbers["rows/graded"] == 4
    assert payload.numbers["labels/abstained"] == 2
    name, metric = next(iter(metrics["metrics"].items()))
    assert ("reward", *(metrics["reward"][part] for part in ("value", "low", "high", "n"))) in payload.tables[
        "figures"
    ].rows
    assert (name, *(metric[part] for part in ("value", "low", "high", "n"))) in payload.tables["figures"].rows
    assert payload.config["policy.model"] == "policy-model"
    assert payload.run_id == make_payload(run, manifest).run_id


@pytest.mark.parametrize("words", [("export.wandb.project=p",), ("export.mlflow.tracking_uri=http://127.0.0.1:9",)])
async def test_an_extra_that_is_missing_is_one_line_and_the_run_is_whole(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    # A module that cannot be found is what a missing extra looks like.
    (tmp_path / "blocked").mkdir()
    hide = (
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name in ('wandb', 'mlflow') else find(name, *more)\n"
    )
    (tmp_path / "blocked" / "sitecustomize.py").write_text(hide)
    async with FaultServer(reply=reply) as server:
        done = await gavel(
            *arguments(write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run", server.base_url, *words),
            env={**os.environ, "PYTHONPATH": str(tmp_path / "blocked")},
        )
    assert done.code == 0, done.out + done.err
    (line,) = [line for line in done.out.splitlines() if line.startswith("warning: ")]
    assert "in the clone of gavel: pip install -e '.[" in line


@pytest.mark.parametrize(
    ("title", "words"),
    [
        pytest.param("MLflow", ("export.mlflow.tracking_uri=http://127.0.0.1:{port}",), marks=needs_mlflow),
        pytest.param(
            "W&B", ("export.wandb.project=p", "export.wandb.base_url=http://127.0.0.1:{port}"), marks=needs_wandb
        ),
    ],
)
async def test_a_server_that_never_answers_stops_no_run_and_costs_no_more_than_the_limit(
    tmp_path: Path, title: str, words: tuple[str, ...]
) -> None:
    async with FaultServer(reply=reply) as server, _hanging() as port:
        own = arguments(write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run", server.base_url, "report=false")
        begun = time.monotonic()
        done = await gavel(
            *own,
            *(word.format(port=port) for word in words),
            "export.timeout_s=6",
            env={**os.environ, "WANDB_API_KEY": "0123456789" * 4, "MARK_OF_THIS_TEST": str(tmp_path)},
        )
        took = time.monotonic() - begun
    assert done.code == 0, done.out + done.err
    assert f"warning: {title}: not exported: no end within 6 s" in done.out
    assert took < 6 + 20
    assert orjson.loads((tmp_path / "run" / "metrics.json").read_bytes())["rows"]["graded"] == 2
    assert _left_over(f"MARK_OF_THIS_TEST={tmp_path}") == []


def _left_over(mark: str) -> list[str]:
    """Processes whose environment holds the mark: all that this test's command started and that still live."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (
                mark.encode() in (process / "environ").read_bytes()
                and (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            ):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return found


@needs_mlflow
async def test_a_run_that_is_incomplete_keeps_its_own_exit_code(tmp_path: Path) -> None:
    async with FaultServer(
        reply=reply, choose=lambda body, n: "500" if body["model"] == "judge-model" else None
    ) as server:
        words = arguments(write_tasks(tmp_path / "t.jsonl", 1), tmp_path / "run", server.base_url, "judge.attempts=1")
        done = await gavel(*words, "export.mlflow.tracking_uri=http://127.0.0.1:9", "export.timeout_s=4")
    assert done.code == 3, done.out + done.err
    assert done.out.count("warning: ") == 1


@needs_wandb
async def test_wandb_offline_really_writes_a_run_into_the_folder(run: Path) -> None:
    done = await gavel("export", str(run), "export.wandb.project=gavel-test", "export.wandb.mode=offline")
    assert done.code == 0, done.out + done.err
    assert "W&B: exported: offline, in " in done.out
    (written,) = (run / "wandb").glob("offline-run-*/run-*.wandb")
    read = _wandb_records(written)
    assert read["summary"]["reward"] == 0.5
    assert read["summary"]["reward_n"] == 4
    assert read["config"]["policy.model"] == "policy-model"
    assert any("figures" in path for path in read["files"])
    assert "Which town lies" not in written.read_bytes().decode("utf-8", "replace")
    tables = [orjson.loads(path.read_bytes()) for path in written.parent.rglob("*.table.json")]
    assert ["reward", 0.5] in [row[:2] for table in tables for row in table["data"]]


def _records(path: Path) -> Iterator[bytes]:
    """Yield the records of a transaction log of W&B: LevelDB's log format behind a head of seven bytes."""
    data, place, block, parts = path.read_bytes(), 7, 1 << 15, b""
    while place + 7 <= len(data):
        if block - place % block < 7:  # what is left of a block holds no head
            place += block - place % block
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def _wandb_records(path: Path) -> dict[str, Any]:
    """Read a transaction log of W&B back: summary, config, names of files."""
    from wandb.proto import wandb_internal_pb2 as pb

    read: dict[str, Any] = {"summary": {}, "config": {}, "files": []}
    for data in _records(path):
        record = pb.Record()
        record.ParseFromString(data)
        for part in (record.summary, record.run.summary, record.history):
            items = part.item if hasattr(part, "item") else part.update
            read["summary"].update(
                {(item.key or "/".join(item.nested_key)): orjson.loads(item.value_json) for item in items}
            )
        for part in (record.config, record.run.config):
            read["config"].update(
                {(item.key or "/".join(item.nested_key)): orjson.loads(item.value_json) for item in part.update}
            )
        read["files"] += [item.path for item in record.files.files]
    return read


@needs_wandb
async def test_wandb_without_a_key_is_one_warning(run: Path, tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    done = await gavel(
        "export",
        str(run),
        "export.wandb.project=p",
        "export.wandb.base_url=http://127.0.0.1:9",
        "export.timeout_s=20",
        env={**clean, "HOME": str(tmp_path), "NETRC": str(tmp_path / "none")},
    )
    assert done.code == 3, done.out
    (line,) = [line for line in done.out.splitlines() if line.startswith("warning: ")]
    assert line.startswith("warning: W&B: not exported: ")


@needs_mlflow
@pytest.mark.parametrize("store", ["folder", "sqlite"])
async def test_mlflow_reads_back_what_was_exported_and_a_second_export_is_the_same_run(
    run: Path, tmp_path: Path, store: str
) -> None:
    if store == "sqlite" and importlib.util.find_spec("sqlalchemy") is None:
        pytest.skip("a database store needs the whole of `mlflow`, not mlflow-skinny")
    uri = f"file://{tmp_path / 'mlruns'}" if store == "folder" else f"sqlite:///{tmp_path / 'mlflow.db'}"
    environment = {**os.environ, "MLFLOW_ALLOW_FILE_STORE": "true"}
    for _ in range(2):
        words = (f"export.mlflow.tracking_uri={uri}", "export.mlflow.experiment=ours")
        done = await gavel(
            "export", str(run), *words, env=environment, cwd=tmp_path
        )  # a database store puts files where it runs
        assert done.code == 0, done.out + done.err
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("ours")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED"
    assert found.info.run_name == "run"
    assert found.data.metrics["reward"] == 0.5
    assert found.data.metrics["reward_n"] == 4
    assert found.data.metrics["rows/graded"] == 4
    assert found.data.params["policy.model"] == "policy-model"
    assert found.data.tags["gavel.kind"] == "rollout"


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("metrics.json", None),
        ("metrics.json", "[]"),
        ("metrics.json", "{"),
        ("metrics.json", '{"tables": 3}'),
        ("config.yaml", "a: ["),
    ],
)
async def test_a_damaged_file_of_a_run_is_one_warning(
    run: Path, name: str, damage: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / name).unlink()
    if damage is not None:
        (run / name).write_text(damage)
    found = await export_run(run, ExportConfig(WandbExport("p"), MlflowExport("sqlite:///nowhere.db")))
    assert [one.line.partition(": not exported: ")[0] for one in found] == ["warning: W&B", "warning: MLflow"]
    assert [one.worked for one in found] == [False, False]


async def test_an_empty_name_is_no_place_to_export_to(run: Path) -> None:
    assert await export_run(run, ExportConfig(WandbExport(""), MlflowExport(""))) == []
    done = await gavel("export", str(run), "export.wandb.project=")
    assert done.code == 2
    assert "no place to export to is named" in done.err


def test_an_export_to_nowhere_and_a_password_in_an_address_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(tmp_path / "none"), "export.wandb.project=p"]) == 2
    capsys.readouterr()
    words = arguments(write_tasks(tmp_path / "t.jsonl", 1), tmp_path / "run", "http://127.0.0.1:9/v1")
    assert main([*words, f"export.mlflow.tracking_uri=http://me:{SECRET}@host/"]) == 2
    complaint = capsys.readouterr().err
    assert "export.mlflow.tracking_uri" in complaint
    assert SECRET not in complaint
    assert main([*words, f"export.wandb.project={'0123456789abcdef' * 2}01234567"]) == 2
    assert "WANDB_API_KEY" in capsys.readouterr().err
    for key in ("wandb.name", "mlflow.experiment", "mlflow.name"):
        places = ("export.wandb.project=p", "export.mlflow.tracking_uri=http://host/")
        assert main([*words, *places, f"export.{key}=sk-abcdef0123456789abcdef"]) == 2
        assert f"export.{key}: this looks like a key" in capsys.readouterr().err
    assert main([*words, "export.mlflow.tracking_uri='http://host/?token=sk-abcdef0123456789abcdef'"]) == 2
    assert "export.mlflow.tracking_uri: an address may not hold" in capsys.readouterr().err
    assert main([*words, "export.wandb.project=p", "export.timeout_s=0"]) == 2
    assert not (tmp_path / "run").exists()


def test_every_option_of_an_export_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sharing_and_export.md").read_text(encoding="utf-8")
    table = "".join(line for line in page.splitlines() if line.startswith("| `export."))
    for options in (WandbExport, MlflowExport):
        for field in fields(options):  # type: ignore[arg-type]
            assert field.name in table, field.name
