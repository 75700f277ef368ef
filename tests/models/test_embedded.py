"""An embedded model is made once, from pinned bytes, whole or not at all, and verified before each use."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.fake_vllm import fake_python, safetensors
from tests.support.processes import wait_until

from gavel.models.errors import ConfigError
from gavel.models.pinned import AssetError, Pin
from gavel.models.vllm import embedded
from gavel.models.vllm.embedded import (
    MODELS,
    Embedded,
    EmbeddedError,
    compute_weights_digest,
    make_prepared_path,
    prepare_embedded,
)

GOOD, BAD = b"weights", b"cannot be converted"


def tiny(data: bytes = GOOD, weights: str | None = None) -> Embedded:
    """A model of a few bytes; its weights are one tensor ``w`` of type U8 that holds them."""
    expected = hashlib.sha256(f"w U8 [{len(data)}]\n".encode() + data).hexdigest()
    pin = Pin("tiny/tiny.gguf", hashlib.sha256(data).hexdigest(), len(data), ())
    return Embedded("tiny", pin, weights or expected)


class Machine:
    """A cache, a mirror that has the source, and a Python that converts."""

    def __init__(self, folder: Path, data: bytes = GOOD) -> None:
        self.cache, self.mirror, self.log = folder / "cache", folder / "mirror", folder / "log"
        (self.mirror / "tiny").mkdir(parents=True)
        (self.mirror / "tiny" / "tiny.gguf").write_bytes(data)
        self.python = fake_python(folder / "bin")
        self.said: list[str] = []

    async def prepare(self, model: Embedded) -> Path:
        return await prepare_embedded(
            model,
            cache=self.cache,
            python=self.python,
            log=self.log,
            progress=self.said.append,
            mirror=self.mirror,
            offline=True,
        )

    @property
    def conversions(self) -> int:
        log = self.cache / "models" / "conversions"
        return len(log.read_text().split()) if log.exists() else 0


async def test_a_model_is_made_once_and_then_found(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    first = await machine.prepare(tiny())
    assert (first / "config.json").is_file()
    assert first == make_prepared_path(tiny(), machine.cache)
    machine.said.clear()
    assert await machine.prepare(tiny()) == first
    assert machine.conversions == 1
    assert machine.said == []


async def test_two_at_once_make_it_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    await asyncio.gather(*(machine.prepare(tiny()) for _ in range(4)))
    assert machine.conversions == 1


def test_two_processes_at_once_make_it_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    script = (
        "import asyncio, sys; from pathlib import Path; sys.path.insert(0, '.');"
        "import tests.models.test_embedded as t; m = t.Machine.__new__(t.Machine); f = Path(sys.argv[1]);"
        "m.cache, m.mirror, m.log, m.python, m.said = f / 'cache', f / 'mirror', f / 'log', str(f / 'bin' / "
        "'python'), [];"
        "print(asyncio.run(m.prepare(t.tiny())))"
    )
    runs = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    told = {run.communicate(timeout=60)[0] for run in runs}
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert told == {f"{make_prepared_path(tiny(), machine.cache)}\n"}
    assert machine.conversions == 1


async def test_a_damaged_model_is_made_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    path = await machine.prepare(tiny())
    (path / "model.safetensors").write_bytes(b"damaged")
    assert await machine.prepare(tiny()) == path
    assert machine.conversions == 2
    assert (path / "model.safetensors").read_bytes() == safetensors("w", GOOD)
    left = {entry.name for entry in path.parent.iterdir()}
    assert left == {path.name, f"{path.name}.lock", "conversions"}


async def test_a_failed_conversion_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, BAD)
    with pytest.raises(EmbeddedError) as caught:
        await machine.prepare(tiny(BAD))
    text = str(caught.value)
    assert "ended with exit code 1" in text
    assert "No module named 'gguf'" in text
    assert "pip install -e '.[cpu]' (needs Python 3.11" in text
    assert [entry.name for entry in (machine.cache / "models").iterdir() if entry.is_dir()] == []


async def test_other_weights_than_the_pinned_ones_are_refused(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with pytest.raises(EmbeddedError, match="other weights than it must"):
        await machine.prepare(tiny(weights="0" * 64))
    assert not make_prepared_path(tiny(weights="0" * 64), machine.cache).exists()


async def test_another_source_is_refused(tmp_path: Path) -> None:
    machine = Machine(tmp_path, b"WEIGHTS")
    with pytest.raises(AssetError, match="not the pinned"):
        await machine.prepare(tiny())


async def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.cache.write_text("a file where the folder should be")
    with pytest.raises(EmbeddedError, match=r"assets\.cache"):
        await machine.prepare(tiny())


async def test_a_cancelled_conversion_leaves_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\ntouch {tmp_path}/begun\nexec sleep 600\n")
    slow.chmod(0o755)
    machine.python = str(slow)
    task = asyncio.create_task(machine.prepare(tiny()))
    await asyncio.to_thread(wait_until, (tmp_path / "begun").exists, 20.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [entry.name for entry in (machine.cache / "models").iterdir() if entry.is_dir()] == []


def test_the_digest_of_weights_looks_through_the_header(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    a, b = {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}, {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}
    header = json.dumps({"b": b, "a": a})
    swapped = json.dumps({"a": dict(reversed(a.items())), "__metadata__": {"format": "pt"}, "b": b})
    expected = hashlib.sha256(b"a U8 [2]\nyzb U8 [1]\nx").hexdigest()
    for text in (header, swapped):
        path.write_bytes(len(text).to_bytes(8, "little") + text.encode() + b"xyz")
        assert compute_weights_digest(path) == expected


def test_an_unknown_embedded_model_is_refused_with_the_nearest() -> None:
    assert embedded.find_embedded("/a/path") is None
    assert embedded.find_embedded("embedded:smollm2") is MODELS["smollm2"]
    with pytest.raises(ConfigError, match="did you mean embedded:smollm2"):
        embedded.find_embedded("embedded:smolm2")
