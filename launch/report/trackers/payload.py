"""What an export shows of a run: figures with their intervals, the config without credentials, tables; never what a
model said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import orjson
import yaml

from gavel.launch.runs.manifest import Manifest
from gavel.models.codec import compute_digest, record, to_plain
from gavel.models.secrets import is_credential_header, is_credential_name, mask_keys

HIDDEN = "[secret]"
Cell = str | float | None


@record
class ExportTable:
    """A table: every row has a cell for each column."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@record
class Payload:
    """One run. ``run_id`` is the same whenever the same run is exported; ``numbers`` are flat; ``config`` has dotted
    keys.
    """

    run_id: str
    name: str
    note: str
    tags: Mapping[str, str]
    config: Mapping[str, Cell | bool]
    numbers: Mapping[str, float]
    tables: Mapping[str, ExportTable]
    document: Mapping[str, Any]


def make_payload(path: Path, manifest: Manifest) -> Payload:
    """Return what is exported of the run at ``path``.

    Raises:
        OSError: it has no ``metrics.json`` or ``config.yaml`` yet.
    """
    metrics = orjson.loads((path / "metrics.json").read_bytes())
    config = yaml.safe_load((path / "config.yaml").read_text(encoding="utf-8"))
    tags = {
        "kind": manifest.kind,
        "gavel": manifest.gavel,
        "identity": str(manifest.digests.get("identity", "")),
        **({"parent": str(manifest.parent.get("run", ""))} if manifest.parent else {}),
        **({"shard": manifest.shard} if manifest.shard else {}),
        **({"ablation": manifest.ablation} if manifest.ablation else {}),
    }
    # One that is copied elsewhere is the same run; a child has another kind, parent or time.
    run_id = compute_digest(
        [manifest.kind, manifest.created, to_plain(manifest.identity), to_plain(manifest.parent), manifest.shard]
    )[7:23]
    return Payload(
        run_id,
        path.resolve().name,
        str(metrics["tables"].get("note", "")),
        tags,
        dict(_list_leaves(_drop_credentials(config))),
        dict(_list_numbers(metrics)),
        _make_tables(metrics),
        metrics,
    )


def _list_numbers(metrics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, metric in _list_figures(metrics):
        yield name, metric["value"]
        for part in ("low", "high", "n"):
            if metric[part] is not None:
                yield f"{name}_{part}", float(metric[part])
    counted = (("rows", metrics["rows"]), ("ungraded", metrics["ungraded"]), ("labels", metrics["labels"]))
    for group, counts in counted:
        for name, count in counts.items():
            yield f"{group}/{name}", float(count)
    for name, cost in metrics["services"].items():
        for key, value in _list_leaves(cost):
            if isinstance(value, int | float):
                yield f"services/{name}/{key.replace('.', '/')}", float(value)


def _list_figures(metrics: Mapping[str, Any]) -> list[tuple[str, Any]]:
    reward = [("reward", metrics["reward"])] if metrics["reward"] else []
    return [*reward, *metrics["metrics"].items()]


def _make_tables(metrics: Mapping[str, Any]) -> dict[str, ExportTable]:
    parts = ("value", "low", "high", "n")
    figures = tuple((name, *(metric[part] for part in parts)) for name, metric in _list_figures(metrics))
    tables = {
        "figures": ExportTable(("metric", *parts), figures),
        "labels": ExportTable(("label", "rows"), tuple(metrics["labels"].items())),
    }
    own = ((f"tables/{name}", _make_table(value)) for name, value in metrics["tables"].items())
    return {**tables, **{name: table for name, table in own if table is not None}}


def _make_table(value: object) -> ExportTable | None:
    """Return a list of flat objects, or an object of them, as a table; None for anything else, which stays in the
    document.
    """
    if isinstance(value, Mapping):
        value = [{"name": name, **row} if isinstance(row, Mapping) else None for name, row in value.items()]
    if not isinstance(value, list) or not value or not all(isinstance(row, Mapping) for row in value):
        return None
    columns = tuple(dict.fromkeys(str(name) for row in value for name in row))
    return ExportTable(columns, tuple(tuple(_make_cell(row.get(name)) for name in columns) for row in value))


def _make_cell(value: object) -> Cell:
    if value is None or isinstance(value, str | float):
        return value
    return float(value) if isinstance(value, int) else orjson.dumps(value).decode()


def _list_leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping) and node:
        for name, value in node.items():
            yield from _list_leaves(value, f"{prefix}.{name}" if prefix else str(name))
    elif prefix:
        yield prefix, node if node is None or isinstance(node, str | int | float) else orjson.dumps(node).decode()


def _drop_credentials(node: Any, name: str = "", *, headers: bool = False) -> Any:
    """Drop what may be a credential, although a config holds only the names of variables: this leaves the machine."""
    if isinstance(node, Mapping):
        return {
            str(key): _drop_credentials(value, str(key), headers="headers" in str(key)) for key, value in node.items()
        }
    if isinstance(node, list):
        return [_drop_credentials(value, name, headers=headers) for value in node]
    if not isinstance(node, str) or not node or name.endswith("_env"):
        return node
    if is_credential_name(name) or (headers and is_credential_header(name)):
        return HIDDEN
    return mask_keys(_URL.sub(lambda found: _strip_address(found[0]), node))


_URL = re.compile(r"\b[a-z][a-z0-9+.-]{0,20}://[^\s,\]'\"]++", re.IGNORECASE)


def _strip_address(url: str) -> str:
    """Return a URL without its user, password and query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
