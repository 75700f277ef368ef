"""Where a source's file comes from: a local path, or a Hugging Face data set at a pinned revision."""

from __future__ import annotations

import re
from pathlib import Path

from gavel.envs.rows import check_file, import_optional
from gavel.models.codec import record
from gavel.models.errors import ConfigError, InputError, shorten_value

_REVISION = re.compile(r"[0-9a-f]{40}")


@record
class SourceConfig:
    """A source as configured.

    Exactly one of ``path`` (a local ``.jsonl``, ``.csv``, ``.tsv`` or ``.parquet``) and ``dataset`` (a Hugging Face id;
    ``revision``: its commit, 40 hex digits; ``file``: the path in it) is set. ``binding`` judges the tasks.
    ``validation_fraction`` in
    [0, 1) goes into ``validation.jsonl``. ``protected`` files hold questions that no task may repeat. By the rows' own
    ``slice_fields``
    the figures of a run are sliced.
    """

    name: str
    path: str | None = None
    dataset: str | None = None
    revision: str | None = None
    file: str = "data/train.jsonl"
    binding: str | None = None
    validation_fraction: float = 0.0
    protected: tuple[str, ...] = ()
    slice_fields: tuple[str, ...] = ()


@record
class Origin:
    """Where the rows came from, as it goes into the manifest."""

    path: str
    sha256: str
    dataset: str | None = None
    revision: str | None = None


def check_source(config: SourceConfig) -> None:
    """Refuse a source config that cannot work.

    Raises:
        ConfigError: names the key.
    """
    if (config.path is None) == (config.dataset is None):
        raise ConfigError(
            "a source has either a path or a dataset",
            field="source.path",
            found="neither" if config.path is None else "both",
            remedy="set source.path=FILE, or source.dataset=OWNER/NAME source.revision=…",
        )
    if config.dataset is not None and not _REVISION.fullmatch(config.revision or ""):
        raise ConfigError(
            "a data set is pinned by revision",
            field="source.revision",
            found=shorten_value(config.revision),
            allowed="40 hexadecimal digits (the commit of the data set's repository)",
        )
    if not 0.0 <= config.validation_fraction < 1.0:
        raise ConfigError(
            "out of range",
            field="source.validation_fraction",
            found=f"{config.validation_fraction:g}",
            allowed="0 <= fraction < 1",
        )


def find_local_file(config: SourceConfig) -> Path:
    """Return the source's file on this machine, downloaded if it is a data set's.

    The file itself is taken, not the rows of ``datasets``, whose one schema for all rows would change them.

    Raises:
        InputError: no such file, or it cannot be downloaded.
    """
    if config.path is not None:
        path = Path(config.path).expanduser()
        check_file(path)
        return path
    hub = import_optional("huggingface_hub", "a Hugging Face data set")
    try:
        found = hub.hf_hub_download(config.dataset, config.file, repo_type="dataset", revision=config.revision)
    except (OSError, ValueError) as failed:  # the hub's errors are of these two families
        raise InputError(
            "this data set's file cannot be downloaded",
            field="source.dataset",
            found=shorten_value(str(failed), 300),
            remedy="check id, revision, file and network; or download it yourself and set source.path=FILE",
        ) from None
    return Path(found)
