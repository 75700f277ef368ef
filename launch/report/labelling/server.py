"""The page of ``gavel label``: one question a screen, answered by the keyboard; nothing of a judge is in it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web
from rich.console import Console

from gavel.launch.config.console import print_line
from gavel.launch.report.labelling.labelled_file import write_labelled
from gavel.launch.report.labelling.page import make_policy, render_page
from gavel.launch.report.labelling.questions import LabelPlan, LabelQuestion
from gavel.launch.report.labelling.store import SKIPPED, LabelStore, read_annotators
from gavel.launch.report.loopback import HOST, make_guarded, serve_page
from gavel.models.codec import to_json

TOKEN = "X-Gavel-Token"
"""The header that only our own page knows to send: no page elsewhere can label."""
MOST_NOTE = 4_000
"""Characters of a note."""


@dataclass(slots=True)
class Labelling:
    """One annotator at one binding's questions.

    ``questions`` are all of the binding, of which ``plan`` names those that are labelled; ``labels`` are the rubric's.
    """

    title: str
    folder: Path
    questions: Sequence[LabelQuestion]
    plan: LabelPlan
    labels: tuple[str, ...]
    annotator: str
    store: LabelStore
    note: str = ""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    async def answer_page(self, _: web.Request) -> web.Response:
        """Answer with the page, every question in it, and what this annotator said before."""
        known = {question.key: question for question in self.questions}
        drawn = [known[key] for key in self.plan.keys if key in known]
        data = {
            "run": self.title,
            "binding": self.plan.binding,
            "annotator": self.annotator,
            "labels": self.labels,
            "note": self.note,
            "token": self.token,
            "questions": [
                {"key": one.key, "slots": one.slots, "slices": one.slices, "said": self._describe_said(one.key)}
                for one in drawn
            ],
        }
        return web.Response(body=render_page(data), content_type="text/html", charset="utf-8")

    def _describe_said(self, key: str) -> dict[str, str] | None:
        event = self.store.said.get(key)
        return None if event is None else {"label": event.label or SKIPPED, "note": event.note}

    async def answer_label(self, request: web.Request) -> web.Response:
        """Keep what was said to one question: a label, ``""`` for a skip, null to take it back."""
        if not secrets.compare_digest(request.headers.get(TOKEN, ""), self.token):
            return web.Response(status=403, text="only the page that was served here may label\n")
        key, label, note = self._read_body(await request.read())
        self.store.add(key, label, note)
        await asyncio.to_thread(self.write_files)
        return web.Response(body=to_json({"said": self._describe_said(key)}), content_type="application/json")

    def _read_body(self, body: bytes) -> tuple[str, str | None, str]:
        try:
            value: Any = orjson.loads(body)
        except orjson.JSONDecodeError:
            raise web.HTTPBadRequest(text="this is no JSON") from None
        fields: Mapping[str, Any] = value if isinstance(value, dict) else {}
        key, label, note = fields.get("key"), fields.get("label"), fields.get("note", "")
        if key not in self.plan.keys or not (label is None or label == SKIPPED or label in self.labels):
            raise web.HTTPBadRequest(text=f"there is no such question, or no such label; allowed: {self.labels}")
        if not isinstance(note, str) or len(note) > MOST_NOTE:
            raise web.HTTPBadRequest(text=f"a note is a text of at most {MOST_NOTE} characters")
        return str(key), label, note

    def write_files(self) -> int:
        """Write ``labelled.jsonl`` from what all annotators said; return its rows."""
        return write_labelled(self.folder, self.questions, self.plan, read_annotators(self.folder))


def make_application(labelling: Labelling) -> web.Application:
    """Return the service of one annotator."""
    app = make_guarded(make_policy(), most=64_000)
    app.router.add_get("/", labelling.answer_page)
    app.router.add_post("/label", labelling.answer_label)
    return app


async def serve_labelling(labelling: Labelling, port: int, console: Console) -> int:
    """Serve the questions on 127.0.0.1 until cancelled."""
    count = len(labelling.plan.keys)

    def announce(bound: int) -> None:
        address = f"http://{HOST}:{bound}/"
        print_line(console, f"{count} questions for {labelling.annotator} at {address} (Ctrl-C ends it)")

    return await serve_page(make_application(labelling), port, announce)
