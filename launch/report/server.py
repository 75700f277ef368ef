"""``gavel view RUN``: the report served on this machine, every row in it, following a run or a training while it
grows.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from aiohttp import web
from rich.console import Console

from gavel.launch.config.console import print_line
from gavel.launch.report.detail import Stories
from gavel.launch.report.index import make_index, sort_failures_first
from gavel.launch.report.loopback import HOST, make_guarded, serve_page
from gavel.launch.report.overview import make_overview, slice_names
from gavel.launch.report.page import encode_script, make_page_policy, render_page
from gavel.launch.report.records import Overview
from gavel.launch.report.source import ReportSource
from gavel.launch.report.training_source import TrainingSource
from gavel.models.codec import to_json

_REST = 4.0
"""An overview is made anew after this many times the seconds that the last one took: a large run must not keep a core
busy.
"""


@dataclass(slots=True)
class Viewer:
    """One run and what is known of it; one request reads at a time."""

    source: ReportSource
    stories: Stories
    overview: Overview | None = None
    slices: list[str] = field(default_factory=list)
    version: int = -1
    _rest_until: float = 0.0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def answer_page(self, _: web.Request) -> web.Response:
        """Answer with the page and all rows so far."""
        async with self._lock:
            data = await asyncio.to_thread(self._make_page)
        return web.Response(body=data, content_type="text/html", charset="utf-8")

    async def answer_changes(self, request: web.Request) -> web.Response:
        """Answer with the rows that changed since ``since`` and a new overview, 204 where there is nothing new."""
        since = _read_number(request.query.get("since"))
        async with self._lock:
            data = await asyncio.to_thread(self._make_changes, since)
        return web.Response(status=204) if data is None else web.Response(body=data, content_type="application/json")

    async def answer_story(self, request: web.Request) -> web.Response:
        """Answer with one row's story."""
        number = _read_number(request.match_info["number"])
        if number >= len(self.source.entries):
            raise web.HTTPNotFound
        async with self._lock:
            data = await asyncio.to_thread(self._make_story, number)
        return web.Response(body=data, content_type="application/json")

    def _refresh_overview(self) -> None:
        """Read what was appended, and sum it up unless that was just done."""
        now = time.monotonic()
        if self.overview is not None and now < self._rest_until:
            return
        changed = self.source.refresh()
        if changed or self.overview is None:
            self.overview = make_overview(self.source)
            self.slices = slice_names(self.source.entries)
            self.version = self.source.version
            self._rest_until = time.monotonic() + _REST * (time.monotonic() - now)

    def _make_page(self) -> bytes:
        self._refresh_overview()
        assert self.overview is not None
        entries = sort_failures_first(self.source.entries)
        listed = make_index(entries, self.slices, texts=not self.overview.content_note)
        meta = {
            "live": True,
            "rows": len(entries),
            "stories": len(entries),
            "run": str(self.source.path),
            "version": self.mark,
        }
        blocks = [
            ("overview", encode_script(self.overview)),
            ("index", encode_script(listed)),
            ("heads", b"[]"),
            ("meta", encode_script(meta)),
        ]
        if isinstance(self.source, TrainingSource):
            blocks.append(("training", encode_script(self.source.list_steps())))
        return render_page(self.overview, blocks, live=True)

    @property
    def mark(self) -> int:
        """What a page has to know to ask for what is newer: grows with rows and with the plan."""
        return self.version + self.source.planned

    def _make_changes(self, since: int) -> bytes | None:
        self._refresh_overview()
        if since == self.mark or self.overview is None:
            return None
        known = since - self.source.planned
        entries = [entry for entry in self.source.entries if entry.version > known]
        listed = make_index(entries, self.slices, texts=not self.overview.content_note)
        news: dict[str, object] = {"version": self.mark, "overview": self.overview, "index": listed}
        if isinstance(self.source, TrainingSource):  # whole: a start of the trainer takes back steps of an earlier one
            news["training"] = self.source.list_steps()
        return to_json(news)

    def _make_story(self, number: int) -> bytes:
        return to_json({**self.stories.make_story(self.source.entries[number]), "heads": self.stories.heads})


def _read_number(text: str | None) -> int:
    if text is None or not text.isdecimal() or len(text) > 12:
        raise web.HTTPBadRequest(text="a whole number is wanted")
    return int(text)


def make_application(viewer: Viewer) -> web.Application:
    """Return the service; it answers requests for this machine's own names alone, so that no web page elsewhere can
    read a run.
    """
    app = make_guarded(make_page_policy(live=True))
    app.router.add_get("/", viewer.answer_page)
    app.router.add_get("/changes", viewer.answer_changes)
    app.router.add_get("/story/{number}", viewer.answer_story)
    return app


async def serve_run(source: ReportSource, port: int, console: Console) -> int:
    """Serve a run on 127.0.0.1 until cancelled."""
    await asyncio.to_thread(source.refresh)

    def announce(bound: int) -> None:
        print_line(console, f"{source.path}: {len(source.entries)} rows at http://{HOST}:{bound}/ (Ctrl-C ends it)")
        print_line(
            console, f"from another machine: ssh -L {bound}:{HOST}:{bound} THIS_HOST, then open the same address there"
        )

    return await serve_page(make_application(Viewer(source, Stories.from_source(source))), port, announce)
