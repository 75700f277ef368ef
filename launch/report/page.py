"""``report.html``: one file that needs nothing else; texts are data that only our own script reads, so none of them can run."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gavel.launch.report.detail import Stories
from gavel.launch.report.entry import Entry
from gavel.launch.report.index import failures_first, index
from gavel.launch.report.overview import overview, slice_names
from gavel.launch.report.records import Overview
from gavel.launch.report.source import RunSource
from gavel.models.codec import to_json

MOST_ROWS, MOST_STORIES, MOST_BYTES = 100_000, 2_000, 60_000_000
"""Rows in the index, rows with their whole story, and bytes of the file."""
_SCRIPTS = ("dom", "pictures", "vera", "data", "rows", "story", "overview", "training", "compare", "main")
ROOM = 500_000
"""Bytes kept free for the page itself."""


def report(source: RunSource) -> bytes:
    """Return ``report.html`` of a run, at most ``MOST_BYTES``; a run without any row gives a page that says so."""
    found = overview(source)
    entries = failures_first(source.entries)[:MOST_ROWS]
    listed = encode(index_of(entries, found, slice_names(source.entries)))
    stories = Stories.of(source)
    blocks = _stories(stories, entries, MOST_BYTES - ROOM - len(listed))
    parts = {
        "overview": encode(found), "index": listed, "heads": encode(stories.heads),
        "meta": encode({"live": False, "rows": len(source.entries), "stories": len(blocks), "run": str(source.path)}),
    }  # fmt: skip
    return render(found, [*((name, data) for name, data in parts.items()), *blocks])


def index_of(entries: Sequence[Entry], found: Overview, slices: Iterable[str]) -> object:
    """Return the index of rows as a page reads it; sensitive texts stay out."""
    return index(entries, slices, texts=not found.content_note)


def _stories(stories: Stories, entries: Iterable[Entry], room: int) -> list[tuple[str, bytes]]:
    """Return the stories of the first rows that fit."""
    blocks: list[tuple[str, bytes]] = []
    for entry in entries:
        if len(blocks) == MOST_STORIES:
            break
        block = encode(stories.story(entry))
        if len(block) > room:
            continue  # one huge row must not keep the others out
        room -= len(block) + 80
        blocks.append((f"story-{entry.number}", block))
    return blocks


def encode(value: object) -> bytes:
    """Encode as JSON that can stand in a script element: no text can end it, whatever it holds."""
    data = to_json(value)
    for character in "<>&\u2028\u2029":
        data = data.replace(character.encode(), b"\\u%04x" % ord(character))
    return data


def render(found: Any, blocks: Sequence[tuple[str, bytes]], *, live: bool = False, title: str = "") -> bytes:
    """Return the page: style and script of ours, allowed by their hashes alone, and blocks of data.

    Args:
        found: the overview, for the summary that is shown without scripts; None for a comparison.
        blocks: (id, JSON) pairs, in order.
        live: whether the page asks the server it came from for more.
        title: of the page, where there is no overview.
    """
    style, script = _style(), _script()
    template = _templates().get_template("page.html.j2")
    head = template.render(
        title=title or f"{found.name} · gavel", overview=found, style=Markup(style), script=Markup(script),
        policy=content_policy(style, script, live=live),
    ).encode()  # fmt: skip
    data = b"\n".join(b'<script type="application/json" id="%s">%s</script>' % (name.encode(), block) for name, block in blocks)
    before, after = head.split(b"<!--data-->")
    return before + data + after


def content_policy(style: str, script: str, *, live: bool) -> str:
    """Return the Content-Security-Policy: nothing from anywhere, no script but this one."""
    return "; ".join((
        "default-src 'none'", f"script-src '{_hash(script)}'", f"style-src '{_hash(style)}'",
        f"connect-src {chr(39)}{'self' if live else 'none'}{chr(39)}", "base-uri 'none'", "form-action 'none'",
    ))  # fmt: skip


def content_policy_of(*, live: bool) -> str:
    """Return the policy of our own page."""
    return content_policy(_style(), _script(), live=live)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _asset(name: str) -> str:
    return (resources.files("gavel.launch.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def _style() -> str:
    return _asset("report.css")


@cache
def _script() -> str:
    return '"use strict";\n(() => {\n' + "\n".join(_asset(f"{name}.js") for name in _SCRIPTS) + "\n})();\n"


def _templates() -> Environment:
    return Environment(loader=PackageLoader("gavel.launch.report", "assets"), autoescape=True, undefined=StrictUndefined)
