"""``report.html``: one file that needs nothing else; texts are data that only our own script reads, so none of them can
run.
"""

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
from gavel.launch.report.entry import ReportEntry
from gavel.launch.report.index import make_index, sort_failures_first
from gavel.launch.report.overview import make_overview, slice_names
from gavel.launch.report.records import Overview
from gavel.launch.report.source import RunSource
from gavel.models.codec import to_json

MOST_ROWS, MOST_STORIES, MOST_BYTES = 100_000, 2_000, 60_000_000
"""Rows in the index, rows with their whole story, and bytes of the file."""
_SCRIPTS = ("dom", "pictures", "vera", "data", "rows", "story", "overview", "training", "compare", "main")
ROOM = 500_000
"""Bytes kept free for the page itself."""


def make_report(source: RunSource) -> bytes:
    """Return ``report.html`` of a run, at most ``MOST_BYTES``; a run without any row gives a page that says so."""
    found = make_overview(source)
    entries = sort_failures_first(source.entries)[:MOST_ROWS]
    listed = encode_script(make_page_index(entries, found, slice_names(source.entries)))
    stories = Stories.from_source(source)
    blocks = _make_stories(stories, entries, MOST_BYTES - ROOM - len(listed))
    parts = {
        "overview": encode_script(found),
        "index": listed,
        "heads": encode_script(stories.heads),
        "meta": encode_script(
            {"live": False, "rows": len(source.entries), "stories": len(blocks), "run": str(source.path)}
        ),
    }
    return render_page(found, [*((name, data) for name, data in parts.items()), *blocks])


def make_page_index(entries: Sequence[ReportEntry], found: Overview, slices: Iterable[str]) -> object:
    """Return the index of rows as a page reads it; sensitive texts stay out."""
    return make_index(entries, slices, texts=not found.content_note)


def _make_stories(stories: Stories, entries: Iterable[ReportEntry], room: int) -> list[tuple[str, bytes]]:
    """Return the stories of the first rows that fit."""
    blocks: list[tuple[str, bytes]] = []
    for entry in entries:
        if len(blocks) == MOST_STORIES:
            break
        block = encode_script(stories.make_story(entry))
        if len(block) > room:
            continue  # one huge row must not keep the others out
        room -= len(block) + 80
        blocks.append((f"story-{entry.number}", block))
    return blocks


def encode_script(value: object) -> bytes:
    """Encode as JSON that can stand in a script element: no text can end it, whatever it holds."""
    data = to_json(value)
    for character in "<>&\u2028\u2029":
        data = data.replace(character.encode(), b"\\u%04x" % ord(character))
    return data


def render_page(found: Any, blocks: Sequence[tuple[str, bytes]], *, live: bool = False, title: str = "") -> bytes:
    """Return the page: style and script of ours, allowed by their hashes alone, and blocks of data.

    Args:
        found: the overview, for the summary that is shown without scripts; None for a comparison.
        blocks: (id, JSON) pairs, in order.
        live: whether the page asks the server it came from for more.
        title: of the page, where there is no overview.
    """
    style, script = _read_style(), _read_script()
    template = load_templates().get_template("page.html.j2")
    head = template.render(
        title=title or f"{found.name} · gavel",
        overview=found,
        style=Markup(style),
        script=Markup(script),
        policy=make_content_policy(style, script, live=live),
    ).encode()
    data = b"\n".join(
        b'<script type="application/json" id="%s">%s</script>' % (name.encode(), block) for name, block in blocks
    )
    before, after = head.split(b"<!--data-->")
    return before + data + after


def make_content_policy(style: str, script: str, *, live: bool) -> str:
    """Return the Content-Security-Policy: nothing from anywhere, no script but this one."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash_text(script)}'",
            f"style-src '{_hash_text(style)}'",
            f"connect-src {chr(39)}{'self' if live else 'none'}{chr(39)}",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def make_page_policy(*, live: bool) -> str:
    """Return the policy of our own page."""
    return make_content_policy(_read_style(), _read_script(), live=live)


def _hash_text(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def read_asset(name: str) -> str:
    """Return a file of this package's assets."""
    return (resources.files("gavel.launch.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def _read_style() -> str:
    return read_asset("report.css")


@cache
def _read_script() -> str:
    return '"use strict";\n(() => {\n' + "\n".join(read_asset(f"{name}.js") for name in _SCRIPTS) + "\n})();\n"


def load_templates() -> Environment:
    """Return the templates of pages."""
    return Environment(
        loader=PackageLoader("gavel.launch.report", "assets"), autoescape=True, undefined=StrictUndefined
    )
