"""The end of a log tells what went wrong, and its lines tell how far a start has come."""

from __future__ import annotations

from pathlib import Path

import pytest

from gavel.models.vllm.logtail import LogReader, Stages, find_stage, read_gist, read_tail

NOISE = """(APIServer pid=1) INFO 11-30 13:11:02 [launcher.py:195] Route: /docs, Methods: GET, HEAD
/x/api_server.py:24: DeprecationWarning: deprecated
  warnings.warn(
INFO:     127.0.0.1:37250 - "GET /health HTTP/1.1" 200 OK

"""


def test_the_tail_is_what_tells_something(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("(EngineCore pid=9) ValueError: no memory\n" + NOISE * 30)
    assert read_tail(log) == "ValueError: no memory"


def test_the_gist_is_the_exception_where_there_is_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ended = 'INFO:     Application shutdown complete.\nnanobind: leaked 514 functions!\n - leaked function "f"\n'
    log.write_text("INFO ready\nERROR [a.py:9] vllm.v1.EngineDeadError: EngineCore encountered an issue.\n" * 2 + ended)
    assert read_gist(log) == "vllm.v1.EngineDeadError: EngineCore encountered an issue."
    log.write_text("one\ntwo\nthree\n" + ended)
    assert read_gist(log, 2) == "three | INFO:     Application shutdown complete."


def test_the_tail_is_bounded_in_lines_and_width(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\xff" * 5000 + b"\n" + b"".join(b"line %d\n" % i for i in range(5000)))
    assert read_tail(log, 3) == "line 4997\nline 4998\nline 4999"
    assert max(map(len, read_tail(log, 5000).splitlines())) <= 200


def test_no_log_has_an_empty_tail(tmp_path: Path) -> None:
    assert read_tail(tmp_path / "none") == ""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "(Worker pid=9) INFO 11-30 13:10:55 [cpu_model_runner.py:68] Starting to load model /tmp/x...",
            "loading weights",
        ),
        (
            "Loading safetensors checkpoint shards:  41% Completed | 7/17 [00:01<00:00,  1.11s/it]",
            "loading weights 41 %",
        ),
        (
            "INFO [kv_cache_utils.py:2327] CPU KV cache size: 46,592 tokens, Maximum concurrency",
            "KV cache of 46,592 tokens",
        ),
        ("INFO:     Application startup complete.", "server is up"),
        ("WARNING [vllm.py:1703] Enforce eager set, disabling torch.compile, CUDAGraphs", None),
    ],
)
def test_lines_of_the_real_server_mark_stages(line: str, words: str | None) -> None:
    assert find_stage(line) == words


def test_a_growing_log_is_read_once_and_by_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("old\nfirst\nsec")
    reader = LogReader(log, offset=4)
    assert list(reader.read_lines()) == ["first"]
    with log.open("a") as file:
        file.write("ond\rthird\n")
    assert list(reader.read_lines()) == ["second", "third"]
    assert list(reader.read_lines()) == []


def test_a_stage_is_told_when_it_begins_and_every_fifteen_seconds_that_it_lasts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    stages = Stages(LogReader(log), began=100.0, every=15.0)
    assert stages.read_stage(114.9) is None
    assert stages.read_stage(115.0) == "the process is starting (15 s)"
    log.write_text("Initializing a V1 LLM engine\n")
    assert stages.read_stage(120.0) == "engine is starting (20 s)"
    assert [stages.read_stage(now) for now in (121.0, 134.9, 135.0, 149.0)] == [
        None,
        None,
        "engine is starting (35 s)",
        None,
    ]
