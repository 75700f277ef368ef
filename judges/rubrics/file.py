"""Reading a rubric from its files: a YAML form, and the prompt and the known answers in it or beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gavel.judges.form_types import ABSENT, RubricForm
from gavel.judges.rubrics.form import check_form
from gavel.models.codec import compute_digest, decode
from gavel.models.errors import ConfigError, find_nearest, shorten_value

_LARGEST = 2_000_000
"""Bytes of each of a rubric's files."""
_OWN = ("name", "expected")
"""Fields of a control besides its slots."""


_MAY_BE_ABSENT = re.compile(r"(?<=\w)\?(?=[ \t]*[,}\]])")
"""The mark behind a source in a flow mapping (``{reference: target.reference?}``), where the reader wants no question
mark.
"""


class _Loader(yaml.SafeLoader):
    """Reads ``yes``, ``no``, ``on`` and ``off`` as the texts they are, since labels are called so."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Refuse an alias: a short file could stand for a huge one."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "an alias", self.get_mark())
        return super().compose_node(parent, index)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag != "tag:yaml.org,2002:bool"]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


def read_rubric_file(path: Path, field: str = "file") -> RubricForm:
    """Read a rubric and check that it fits together.

    Args:
        path: the YAML file; the files it names lie beside it, or where it says.
        field: the key that names the file, for the error.

    Raises:
        ConfigError: names file, line and field, what was found, what is allowed and what to do.
    """
    text = _read_text(path, field)
    node, tree = _load_yaml(text, path)
    given = dict(tree)
    for name in ("path", "files"):
        if name in given:
            raise _place_error(ConfigError("there is no such field", field=name, remedy="remove it"), node, path)
    files = {"rubric": compute_digest(text.encode())}
    for name, reader in (("prompt", _read_prompt), ("controls", _read_controls)):
        if name not in given:
            continue  # said below, with every other missing field
        given[name], origin = reader(given, path, node)
        if origin is not None:
            files[name] = compute_digest(origin.encode())
    for name in ("hostile", "targets"):
        if isinstance(given.get(name), str):
            given[name] = [given[name]]
    if isinstance(given.get("attacks"), Mapping):
        given["attacks"] = {
            name: [labels] if isinstance(labels, str) else labels for name, labels in given["attacks"].items()
        }
    try:
        form = decode(RubricForm, {**given, "path": str(path), "files": files}, error=ConfigError)
        check_form(form)
    except ConfigError as failed:
        raise _place_error(failed, node, path) from None
    return form


def _place_error(failed: ConfigError, node: yaml.Node, path: Path) -> ConfigError:
    where = f"{path}:{_find_line(node, failed.field.split('.'))}"
    return failed.copy_with(where=failed.where or where)


def _find_line(node: yaml.Node, field: Sequence[str]) -> int:
    """Return the line of a field, or of the last part of it that is there."""
    line = node.start_mark.line + 1
    for name in field:
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        found = next(((key, value) for key, value in pairs if key.value == name), None)
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line


def _read_text(path: Path, field: str, where: str = "") -> str:
    try:
        if path.exists() and not path.is_file():  # a folder; a device or a pipe would never end
            raise OSError("it is no file")
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as failed:
        near = _find_near(path)
        raise ConfigError(
            "this file of a rubric cannot be read",
            where=where,
            field=field,
            found=f"{path}: {failed.strerror or failed}",
            remedy=f"did you mean {near}?" if near else "check the path; `gavel new rubric NAME` writes one",
        ) from None
    if len(data) > _LARGEST:
        raise ConfigError(
            "this file is too large for a rubric", where=str(path), field=field, found=f"more than {_LARGEST:,} bytes"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as failed:
        line = data[: failed.start].count(b"\n") + 1
        raise ConfigError(
            "this file is not UTF-8", where=f"{path}:{line}", field=field, allowed="UTF-8", remedy="save it as UTF-8"
        ) from None


def _find_near(path: Path) -> Path | None:
    """Return a file that may be meant: of the same name in a folder beside it, or of a name like it."""
    try:
        around = sorted(path.parent.iterdir())
    except OSError:
        return None
    inside = [folder / path.name for folder in around if (folder / path.name).is_file()]
    names = [file.name for file in around if file.is_file() and file != path]
    return next(iter([*inside, *(path.parent / name for name in find_nearest(path.name, names))]), None)


def _load_yaml(text: str, path: Path) -> tuple[yaml.Node, Mapping[str, Any]]:
    stand_in = next(chr(code) for code in range(0xE000, 0xF900) if chr(code) not in text)
    loader = _Loader(_MAY_BE_ABSENT.sub(stand_in, text))
    try:
        node = loader.get_single_node()
        if isinstance(node, yaml.MappingNode):
            _check_twice(node, path)
            return node, _with_text_keys(loader.construct_document(node), stand_in)
    except yaml.MarkedYAMLError as failed:
        mark = failed.problem_mark
        raise ConfigError(
            "this is not valid YAML",
            where=f"{path}:{mark.line + 1 if mark else 1}",
            found=shorten_value(failed.problem or ""),
        ) from None
    except yaml.YAMLError as failed:
        raise ConfigError("this is not valid YAML", where=str(path), found=shorten_value(str(failed))) from None
    except RecursionError:
        raise ConfigError("this is nested too deeply for a rubric", where=str(path)) from None
    finally:
        loader.dispose()
    raise ConfigError(
        "this is no rubric",
        where=f"{path}:1",
        found=shorten_value(text),
        allowed="name, slots, prompt, reply, labels, hostile, controls",
        remedy="`gavel new rubric NAME` writes one to begin with",
    )


def _check_twice(node: yaml.Node, path: Path, place: str = "") -> None:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_twice(item, path, place)
    if not isinstance(node, yaml.MappingNode):
        return
    seen: dict[str, int] = {}
    for key, value in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        if name in seen:
            raise ConfigError(
                "this stands twice",
                where=f"{path}:{line}",
                field=f"{place}{name}",
                found=f"also in line {seen[name]}",
                remedy="keep one",
            )
        seen[name] = line
        _check_twice(value, path, f"{place}{name}.")


def _with_text_keys(value: Any, stand_in: str) -> Any:
    if isinstance(value, str):
        return value.replace(stand_in, "?")
    if isinstance(value, dict):
        return {str(name): _with_text_keys(item, stand_in) for name, item in value.items()}
    return [_with_text_keys(item, stand_in) for item in value] if isinstance(value, list) else value


def _read_prompt(given: Mapping[str, Any], path: Path, node: yaml.Node) -> tuple[str, str | None]:
    """Return the prompt: a text of several lines or with a placeholder stands for itself, any other names a file."""
    prompt = given["prompt"]
    if not isinstance(prompt, str) or "\n" in prompt or "{" in prompt:
        return prompt, None
    text = _read_text(path.parent / Path(prompt).expanduser(), "prompt", f"{path}:{_find_line(node, ['prompt'])}")
    return text.removesuffix("\n"), text


def _read_controls(given: Mapping[str, Any], path: Path, node: yaml.Node) -> tuple[Any, str | None]:
    rows, place, origin = given["controls"], path, None
    line = _find_line(node, ["controls"])
    if isinstance(rows, str):
        place = path.parent / Path(rows).expanduser()
        origin = _read_text(place, "controls", f"{path}:{line}")
        numbered = [
            (number, _parse_row(text, f"{place}:{number}"))
            for number, text in enumerate(origin.split("\n"), 1)
            if text.strip()
        ]
    else:
        if not isinstance(rows, list):
            raise ConfigError(
                "these are no controls",
                where=f"{path}:{line}",
                field="controls",
                found=shorten_value(rows),
                allowed="a file of JSON lines, or a list",
            )
        numbered = list(enumerate(rows, 1))
    slots = given.get("slots")
    if not isinstance(slots, Mapping):
        return (), origin  # refused with the slots
    return [
        _read_control(row, slots, f"{place}:{number if origin is not None else line}", number)
        for number, row in numbered
    ], origin


def _parse_row(text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_read_once)
    except (ValueError, RecursionError) as failed:
        raise ConfigError(
            "this line is not JSON", where=where, field="controls", found=str(failed), allowed="one object a line"
        ) from None


def _read_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object whose names stand once each; raises ``ValueError`` for another."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"`{next(name for name in names if names.count(name) > 1)}` stands twice")
    return found


def _read_control(row: Any, slots: Mapping[str, Any], where: str, number: int) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise ConfigError(
            "this is no control",
            where=where,
            field="controls",
            found=shorten_value(row),
            allowed="an object: its slots, and expected",
        )
    for name in row:
        if name not in slots and name not in _OWN:
            near = find_nearest(str(name), (*slots, *_OWN))
            raise ConfigError(
                "there is no such slot",
                where=where,
                field=str(name),
                found=shorten_value(row[name]),
                allowed=", ".join((*slots, *_OWN)),
                remedy=f"did you mean `{near[0]}`?" if near else "remove it",
            )
    texts = {slot: row.get(slot, ABSENT if str(source).endswith("?") else None) for slot, source in slots.items()}
    for slot, text in texts.items():
        if not isinstance(text, str):
            raise ConfigError(
                "this control lacks a text",
                where=where,
                field=slot,
                found=shorten_value(text),
                allowed="a text for every slot",
            )
    expected = row.get("expected")
    listed = [expected] if isinstance(expected, str) else expected
    if not isinstance(listed, list) or not listed or not all(isinstance(label, str) for label in listed):
        raise ConfigError(
            "this control expects no label",
            where=where,
            field="expected",
            found=shorten_value(expected),
            allowed="a label, or a list",
        )
    name = row.get("name", f"control_{number}")
    if not isinstance(name, str) or not name.strip():
        raise ConfigError("this is no name", where=where, field="name", found=shorten_value(name), allowed="a text")
    return {"name": name, "slots": texts, "expected": listed}
