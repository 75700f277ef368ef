"""What is kept, under which key, and when it is not."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gavel.models.calls.cache import (
    ReplyCache,
    StoredReply,
    find_file_system,
    is_cacheable,
    make_cache_key,
    make_cache_seed,
)
from gavel.models.errors import ConfigError
from gavel.models.service import Service
from gavel.models.types import ChatRequest, Message, ResponseFormat, Sampling, Usage

REPLY = StoredReply("A", "stop", "m", "m-2026", "id-1", Usage(3, 1), None)
MANAGED = Service(mode="managed", model="Qwen/Qwen3-32B", revision="9" * 40)
COLD = Sampling(temperature=0.0)


def key(
    service: Service = MANAGED,
    sampling: Sampling = COLD,
    fmt: ResponseFormat | None = None,
    engine: str = "vllm 0.32",
    sample: int = 0,
) -> bytes:
    return make_cache_key(make_cache_seed(service, engine, sampling, fmt), b'[{"content":"x","role":"user"}]', sample)


@pytest.mark.parametrize(
    "other",
    [
        key(replace(MANAGED, model="Qwen/Qwen3-8B")),
        key(replace(MANAGED, revision="8" * 40)),
        key(replace(MANAGED, dtype="float16")),
        key(replace(MANAGED, quantization="fp8")),
        key(replace(MANAGED, chat_template_kwargs={"enable_thinking": False})),
        key(engine="vllm 0.33"),
        key(sampling=replace(COLD, top_p=0.5)),
        key(sampling=replace(COLD, max_response_tokens=5)),
        key(sampling=replace(COLD, seed=1)),
        key(sampling=replace(COLD, reasoning_effort="low")),
        key(sampling=replace(COLD, stop=("x",))),
        key(sampling=replace(COLD, extra={"top_k": 5})),
        key(fmt=ResponseFormat(choice=("A", "B"))),
        key(sample=1),
        make_cache_key(make_cache_seed(MANAGED, "vllm 0.32", COLD, None), b'[{"content":"y","role":"user"}]', 0),
    ],
)
def test_everything_a_reply_depends_on_is_in_the_key(other: bytes) -> None:
    assert other != key()


@pytest.mark.parametrize(
    "same",
    [
        key(replace(MANAGED, port=9000, max_in_flight=1, deadline=1.0, gpus=2)),
        key(sampling=replace(COLD, extra={"prompt_cache_key": "k"})),
    ],
)
def test_nothing_else_is(same: bytes) -> None:
    assert same == key()


def test_an_external_service_counts_by_its_url() -> None:
    one = Service(mode="external", model="m", base_url="http://a/v1")
    assert key(one) != key(replace(one, base_url="http://b/v1"))


@pytest.mark.parametrize(
    ("changes", "may"),
    [
        ({"sampling": COLD}, True),
        ({"sampling": Sampling()}, False),
        ({"sampling": Sampling(temperature=0.7)}, False),
        ({"sampling": Sampling(temperature=0.7), "sample": 2}, True),
        ({"sampling": COLD, "fresh": True}, False),
        ({"sampling": COLD, "sample": 1, "fresh": True}, False),
    ],
)
def test_only_calls_with_one_right_reply_may_share_it(changes: dict[str, Any], may: bool) -> None:
    assert is_cacheable(replace(ChatRequest((Message("user", "x"),), "judge"), **changes)) is may


def test_what_was_kept_is_found_before_and_after_it_is_written_and_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "replies.sqlite"
    with ReplyCache(path) as cache:
        assert cache.get(b"k") is None
        cache.put(b"k", REPLY)
        assert cache.get(b"k") == REPLY
    with ReplyCache(path) as cache:
        assert cache.get(b"k") == REPLY
        cache.put(b"k", replace(REPLY, text="B"))
        cache.flush()
        reader = (
            "import sys; from pathlib import Path; from gavel.models.calls.cache import ReplyCache\n"
            "print(ReplyCache(Path(sys.argv[1])).get(b'k').text)"
        )
        told = subprocess.run([sys.executable, "-c", reader, str(path)], capture_output=True, text=True, check=True)
        assert told.stdout.strip() == "A"  # the first stays


def test_many_replies_are_written_without_being_asked_to(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies.sqlite")
    for n in range(200):
        cache.put(b"%d" % n, REPLY)
    rows = sqlite3.connect(tmp_path / "replies.sqlite").execute("SELECT count(*) FROM replies").fetchone()
    assert rows[0] >= 128
    cache.close()


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "fuse.sshfs", "beegfs"])
def test_a_network_file_system_is_refused(tmp_path: Path, kind: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nhost:/x {tmp_path}/net {kind} rw 0 0\n")
    with pytest.raises(ConfigError, match="network file system"):
        ReplyCache(tmp_path / "net" / "replies.sqlite", mounts=mounts)
    ReplyCache(tmp_path / "local" / "replies.sqlite", mounts=mounts).close()


def test_the_innermost_and_newest_mount_counts(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"a / ext4 rw 0 0\nb {tmp_path}/with\\040space nfs rw 0 0\nc {tmp_path} xfs rw 0 0\nd {tmp_path} tmpfs rw 0 0\n"
    )
    assert find_file_system(tmp_path / "x", mounts) == "tmpfs"
    assert find_file_system(tmp_path / "with space" / "x", mounts) == "nfs"
    assert find_file_system(tmp_path, tmp_path / "nothing") == ""


def test_a_file_that_is_no_database_is_a_config_error(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    path.write_bytes(b"not a database, certainly not one" * 100)
    with pytest.raises(ConfigError, match="cannot be opened"):
        ReplyCache(path)


def test_a_file_that_breaks_later_turns_the_cache_off_and_nothing_else(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies.sqlite")
    cache._file.execute("DROP TABLE replies")
    assert cache.get(b"k") is None
    assert "off" in (cache.problem or "")
    cache.put(b"k", REPLY)
    cache.close()


def test_a_value_of_another_version_is_a_miss(tmp_path: Path) -> None:
    with ReplyCache(tmp_path / "replies.sqlite") as cache:
        cache._file.execute("INSERT INTO replies VALUES (?, ?)", (b"k", b'{"text":"A","usage":null}'))
        cache._file.execute("INSERT INTO replies VALUES (?, ?)", (b"l", b"[]"))
        assert (cache.get(b"k"), cache.get(b"l")) == (None, None)
