"""What services send under status 200 besides a reply: an error, a filter's note, a refusal, a text in parts.

Each is played by a real server, against a judge and a policy. An error is never a text, a filtered reply is no error,
and only what may pass is asked for again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from aiohttp import web

from gavel.models.calls.client import ChatClient
from gavel.models.calls.retry import Backoff
from gavel.models.failures import ModelFailure
from gavel.models.service import Service, Timeout
from gavel.models.types import CallRole, ChatRequest, Message, Sampling

QUICK = Backoff(base=0.001, cap=0.002)
AGAIN, FILTERED, UNREAD = "provider_unavailable x2", "gavel:content_filtered x1", "judge_unparseable x1"
PACED = "provider_unavailable paced"


def chat(message: Any, finish: Any = "stop", **further: Any) -> dict[str, Any]:
    return {"id": "x", "model": "fake", "choices": [{"message": message, "finish_reason": finish, **further}]}


def text(content: Any, finish: Any = "stop", **further: Any) -> dict[str, Any]:
    return chat({"role": "assistant", "content": content}, finish, **further)


def error(code: Any, message: str, **further: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, **further}}


REPLIES: dict[str, tuple[Any, str, str]] = {
    # name: the body, what a judge's call ends as, what a policy's does
    "an error of the gateway's": (error(502, "Provider returned error"), AGAIN, AGAIN),
    "an error beside a text": ({**text("A"), **error(500, "internal")}, AGAIN, AGAIN),
    "an error in the choice": (text("A", error={"code": 502, "message": "boom"}), AGAIN, AGAIN),
    "an error in the message": (chat({"content": "A", "error": {"message": "boom"}}), AGAIN, AGAIN),
    "an error within an error": ({"error": error(503, "busy")}, AGAIN, AGAIN),
    "an error in a list": ([error(503, "overloaded", status="UNAVAILABLE")], AGAIN, AGAIN),
    "a limit in a list": ([error(429, "exhausted", status="RESOURCE_EXHAUSTED")], PACED, PACED),
    "a limit by its word alone": ({"error": {"message": "Try later.", "status": "RESOURCE_EXHAUSTED"}}, PACED, PACED),
    "a bare limit": ({"code": "Throttling.RateQuota", "message": "exceeded, please try again"}, PACED, PACED),
    "a bare filter": ({"code": "DataInspectionFailed", "message": "Output data"}, FILTERED, FILTERED),
    "a bare overflow": (
        {"object": "error", "message": "This model's maximum context length is 4096 tokens.", "code": 400},
        "gavel:context_overflow x1",
        "gavel:context_overflow x1",
    ),
    "a list of errors": ({"success": False, "errors": [{"message": "boom"}]}, AGAIN, AGAIN),
    "no error after all": ({**text("A"), "error": None}, "A x1", "A x1"),
    "choices null": ({"id": "x", "model": "fake", "choices": None}, AGAIN, AGAIN),
    "choices empty": ({"id": "x", "model": "fake", "choices": []}, AGAIN, AGAIN),
    "choices of null": ({"id": "x", "model": "fake", "choices": [None]}, AGAIN, AGAIN),
    "filtered": (text("A", "content_filter"), FILTERED, FILTERED),
    "filtered, without a message": (
        {"model": "fake", "choices": [{"finish_reason": "content_filter"}]},
        FILTERED,
        FILTERED,
    ),
    "filtered, and why": (text("", "content_filter: SAFETY"), FILTERED, FILTERED),
    **{
        f"filtered as {word}": (text("", word), FILTERED, FILTERED)
        for word in ("PROHIBITED_CONTENT", "BLOCKLIST", "refusal", "guardrail_intervened", "sensitive")
    },
    "filtered, the provider says": (text("", native_finish_reason="SAFETY"), FILTERED, FILTERED),
    "filtered, the checks say": (text("", content_filter_results={"hate": {"filtered": True}}), FILTERED, FILTERED),
    "checked": (
        text("A", content_filter_results={"hate": {"filtered": False}, "error": {"code": "x"}}),
        "A x1",
        "A x1",
    ),
    "a refusal": (chat({"content": None, "refusal": "No."}), UNREAD, "No. x1"),
    "a refusal, the text empty": (chat({"content": "", "refusal": "No."}), UNREAD, "No. x1"),
    "a refusal beside a verdict": (chat({"content": "A", "refusal": "No."}), UNREAD, "A x1"),
    "a refusal as a part": (text([{"type": "refusal", "refusal": "No."}]), UNREAD, "No. x1"),
    "a text in parts": (text([{"type": "text", "text": "A"}, {"type": "output_text", "text": "B"}]), "AB x1", "AB x1"),
    "bare texts as parts": (text(["A", {"text": "B"}]), "AB x1", "AB x1"),
    "thinking as a part": (
        text([{"type": "thinking", "thinking": "B"}, {"type": "text", "text": "A"}]),
        "A x1",
        "A x1",
    ),
    "no parts": (text([]), UNREAD, " x1"),
    "a part that is none": (text([5, {"type": "text", "text": "A"}]), AGAIN, AGAIN),
    "a part of text without text": (text([{"type": "text", "text": {"value": "A"}}]), AGAIN, AGAIN),
    "content that is an object": (text({"text": "A"}), AGAIN, AGAIN),
    "another API's reply": ({"type": "message", "content": [{"type": "text", "text": "A"}]}, AGAIN, AGAIN),
}


class Replier:
    """A server that answers every call with ``body``."""

    def __init__(self) -> None:
        self.body, self.count, self.base_url = {}, 0, ""  # type: Any, int, str

    async def answer(self, _: web.Request) -> web.Response:
        self.count += 1
        return web.Response(body=orjson.dumps(self.body), content_type="application/json")


@asynccontextmanager
async def serve() -> AsyncIterator[Replier]:
    replier, app = Replier(), web.Application()
    app.router.add_post("/v1/chat/completions", replier.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    replier.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield replier
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("role", ["judge", "policy"])
async def test_what_comes_under_200_ends_as_what_it_is_and_is_asked_again_only_where_that_helps(role: CallRole) -> None:
    found = {}
    async with serve() as server:
        for name, (body, *_) in REPLIES.items():
            server.body, server.count = body, 0
            deadline = 0.1 if PACED in REPLIES[name] else 5.0
            service = Service(
                "external", "fake", base_url=server.base_url, attempts=2, timeout=Timeout(5.0, 5.0), deadline=deadline
            )
            async with ChatClient(role, service, backoff=QUICK) as client:
                try:
                    done = await client.complete(ChatRequest((Message("user", "q"),), role, Sampling()))
                    ended = done.reply.text
                except ModelFailure as failed:
                    ended = str(failed.kind)
            found[name] = f"{ended} {'paced' if server.count > 2 else f'x{server.count}'}"
    assert found == {name: wanted[0 if role == "judge" else 1] for name, (_, *wanted) in REPLIES.items()}
