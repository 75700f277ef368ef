"""A real local HTTP server that answers like an OpenAI-style server and can play every fault of
``tests/support/faults.py``.

In a test::

    async with FaultServer(reply=lambda body: "A") as server:
        service = Service(mode="external", model="fake", base_url=server.base_url)
        server.script(["429", Fault("slow_headers", seconds=0.2), "ok"])   # one per generation request, then normal
        again
        ...
        assert server.count == 3 and server.requests[0].body["messages"]

``reply(body)`` gets the request's JSON and returns a text or an ``Answer``. ``choose(body, n)`` may name a fault for
the n-th generation request instead of a script; ``share(0.3, [...], seed)`` makes one. ``latency`` (seconds) and
``capacity`` (requests in work at once, more get 429) may be changed while it runs; below /v1 it wants the ``key``, if
there is one. ``await until(n)`` waits for the n-th request. ``stop()`` and ``start()`` restart it on the same port.

As its own process (prints the port on the first line; ``server_process`` starts and ends one)::

    python -m tests.support.fault_server --port 0 --reply tests.support.fault_server:always_a --latency 0.05 --script
    429,ok

Paths: /health, /v1/models, /v1/chat/completions, /v1/responses, /tokenize, /tokenizer_info; and /_stats (counts as
JSON), POST /_script (a JSON list).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import random
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import orjson
from tests.support.faults import ANSWERS, BODIES, NAMES, STATUS, Answer, Fault

ReplyFunction = Callable[[dict[str, Any]], "str | Answer"]
Chooser = Callable[[dict[str, Any], int], "Fault | str | None"]

_GENERATION = {"/v1/chat/completions": False, "/v1/responses": True}
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    429: "Too Many Requests",
}


@dataclass(frozen=True)
class Seen:
    """One generation request as it came in; header names are lower case, ``time`` is ``time.monotonic()``."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    time: float
    connection: int


def always_a(body: dict[str, Any]) -> str:
    """The judge that always says A."""
    return "A"


def share(fraction: float, faults: Sequence[Fault | str], seed: int = 0) -> Chooser:
    """Choose one of ``faults`` for ``fraction`` of the requests, by a seeded generator."""
    draw = random.Random(seed)
    return lambda body, n: draw.choice(faults) if draw.random() < fraction else None


def count_tokens(body: dict[str, Any]) -> int:
    """Tokens of a request as this server counts them: words of all messages, and 4 for each message."""
    texts = [message.get("content") or "" for message in body.get("messages") or []] or [str(body.get("prompt") or "")]
    return sum(len(str(text).split()) + 4 for text in texts)


@dataclass
class FaultServer:
    """The server; see the module's docstring."""

    reply: ReplyFunction = always_a
    choose: Chooser | None = None
    model: str = "fake"
    latency: float = 0.0
    capacity: int | None = None
    port: int = 0
    record: bool = True
    max_model_len: int = 8192
    owner: str = "tests"
    tokenizes: bool = True
    tokenizer: dict[str, Any] | None = None
    keep_alive: float | None = None
    key: str | None = None
    requests: list[Seen] = field(default_factory=list)
    count: int = 0
    paths: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    connections: int = 0
    in_work: int = 0
    peak_in_work: int = 0
    _script: deque[Fault | str] = field(default_factory=deque)
    _open: set[_Connection] = field(default_factory=set)
    _server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def script(self, faults: Iterable[Fault | str]) -> None:
        """Play these, one per generation request; then normal replies again."""
        self._script.extend(faults)

    async def start(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self.port, backlog=4096)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """Stop listening and reset every open connection."""
        if self._server is not None:
            self._server.close()
            for connection in list(self._open):
                connection.transport.abort()
            await self._server.wait_closed()
            self._server = None

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def until(self, count: int, timeout: float = 5.0) -> None:
        """Wait until ``count`` generation requests have come in."""
        async with asyncio.timeout(timeout):
            while self.count < count:  # noqa: ASYNC110 - the count is set in many places
                await asyncio.sleep(0.005)

    def stats(self) -> dict[str, Any]:
        """Counts so far, as /_stats answers them."""
        return {
            "count": self.count,
            "paths": dict(self.paths),
            "faults": dict(self.faults),
            "connections": self.connections,
            "peak_in_work": self.peak_in_work,
            "statuses": {str(key): value for key, value in self.statuses.items()},
        }

    # What follows is called by the connections.

    def next_fault(self, body: dict[str, Any]) -> Fault:
        found: Fault | str | None = None
        if self._script:
            found = self._script.popleft()
        elif self.capacity is not None and self.in_work > self.capacity:
            found = "429"
        elif self.choose is not None:
            found = self.choose(body, self.count)
        fault = found if isinstance(found, Fault) else Fault(found or "ok")
        if fault.name not in NAMES:
            raise ValueError(f"no such fault: {fault.name}; allowed: {', '.join(NAMES)}")
        self.faults[fault.name] += 1
        return fault

    def answer(self, body: dict[str, Any], fault: Fault, *, responses: bool) -> bytes:
        """Return the body of a 200 reply."""
        said = Answer(fault.text) if fault.name == "text" else self.reply(body)
        answer = said if isinstance(said, Answer) else Answer(said)
        change = ANSWERS.get(fault.name)
        answer = change(answer) if change else answer
        document = (_responses_body if responses else _chat_body)(self, body, answer)
        edit = BODIES.get(fault.name)
        return edit(document) if edit else orjson.dumps(document)

    def plain(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        """Answer what is not a generation request."""
        if path == "/health":
            return 200, b""
        if path == "/v1/models":
            card = {"id": self.model, "object": "model", "max_model_len": self.max_model_len, "owned_by": self.owner}
            return 200, orjson.dumps({"object": "list", "data": [card]})
        if path == "/tokenize" and self.tokenizes:
            tokens = count_tokens(body)
            return 200, orjson.dumps(
                {"count": tokens, "max_model_len": self.max_model_len, "tokens": list(range(tokens))}
            )
        if path == "/tokenizer_info" and self.tokenizer is not None:
            return 200, orjson.dumps(self.tokenizer)
        if path == "/_stats":
            return 200, orjson.dumps(self.stats())
        if path == "/_script":
            self.script(body["faults"])
            return 200, b"{}"
        return 404, orjson.dumps({"error": {"message": f"no such path: {path}", "code": 404}})


def _usage(body: dict[str, Any], answer: Answer) -> tuple[int, int]:
    return count_tokens(body), len((answer.text or "").split())


def _chat_body(server: FaultServer, body: dict[str, Any], answer: Answer) -> dict[str, Any]:
    prompt, completion = _usage(body, answer)
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.reasoning is not None:
        message["reasoning_content"] = answer.reasoning
    if answer.refusal is not None:
        message["refusal"] = answer.refusal
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {
        "id": f"chatcmpl-{server.count}",
        "object": "chat.completion",
        "created": 0,
        "model": answer.model or body.get("model"),
        "choices": [{"index": 0, "message": message, "finish_reason": answer.finish_reason}],
        "usage": usage if answer.usage is None else dict(answer.usage),
    }


def _responses_body(server: FaultServer, body: dict[str, Any], answer: Answer) -> dict[str, Any]:
    prompt, completion = _usage({"messages": body.get("input") or []}, answer)
    output: list[dict[str, Any]] = []
    if answer.reasoning is not None:
        output.append(
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": answer.reasoning}]}
        )
    if answer.text is not None:
        part = {"type": "output_text", "text": answer.text, "annotations": []}
        output.append({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]})
    reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(answer.finish_reason)
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": prompt, "output_tokens": completion, "total_tokens": prompt + completion, **details}
    return {
        "id": f"resp_{server.count}",
        "object": "response",
        "model": answer.model or body.get("model"),
        "output": output,
        "created_at": 0,
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "usage": usage if answer.usage is None else dict(answer.usage),
    }


class _Connection(asyncio.Protocol):
    """One connection: requests are read whole, answered in order; no pipelining."""

    transport: asyncio.Transport

    def __init__(self, server: FaultServer) -> None:
        self._server, self._buffer, self._number = server, b"", 0
        self._timers: set[asyncio.TimerHandle] = set()
        self._working = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]
        self._server.connections += 1
        self._number = self._server.connections
        self._server._open.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._server._open.discard(self)
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._end_work()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        line, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (item.partition(":") for item in lines)}
        size = int(headers.get("content-length", 0))
        if len(self._buffer) < end + 4 + size:
            return
        content, self._buffer = self._buffer[end + 4 : end + 4 + size], self._buffer[end + 4 + size :]
        self._request(line.split(" ")[1].partition("?")[0], headers, orjson.loads(content) if content else {})

    def _request(self, path: str, headers: dict[str, str], body: Any) -> None:
        server = self._server
        server.paths[path] += 1
        if (
            server.key is not None
            and path.startswith("/v1/")
            and headers.get("authorization") != f"Bearer {server.key}"
        ):
            self._send(401, orjson.dumps({"error": {"message": "wrong key", "code": 401}}))
            return
        responses = _GENERATION.get(path)
        if responses is None:
            self._send(*server.plain(path, body if isinstance(body, dict) else {"faults": body}))
            return
        server.count += 1
        server.in_work += 1
        self._working = True
        server.peak_in_work = max(server.peak_in_work, server.in_work)
        if server.record:
            server.requests.append(Seen(path, headers, body, time.monotonic(), self._number))
        fault = server.next_fault(body)
        if server.latency > 0 and fault.name not in STATUS:
            self._later(server.latency, lambda: self._play(fault, body, responses))
        else:
            self._play(fault, body, responses)

    def _play(self, fault: Fault, body: dict[str, Any], responses: bool) -> None:
        self._end_work()
        if fault.name in STATUS:
            status, content = STATUS[fault.name]
            extra = f"Retry-After: {fault.retry_after}\r\n" if fault.retry_after is not None else ""
            self._send(status, content, extra=extra, kind="application/json" if content[:1] == b"{" else "text/html")
            return
        wire = _WIRE.get(fault.name)
        if fault.name in ("reset_before", "close_before"):
            _drop(self, fault)
            return
        content = self._server.answer(body, fault, responses=responses)
        if wire is None:
            self._send(200, content)
        else:
            wire(self, fault, content)

    def _send(
        self, status: int, content: bytes, *, extra: str = "", kind: str = "application/json", promise: int = 0
    ) -> None:
        self._server.statuses[status] += 1
        if self.transport.is_closing():
            return
        head = (
            f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {promise or len(content)}\r\n{extra}\r\n"
        )
        self.transport.write(head.encode() + content)
        if self._server.keep_alive is not None:
            self._later(self._server.keep_alive, self.transport.close)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        def run() -> None:
            self._timers.discard(timer)
            action()

        timer = asyncio.get_running_loop().call_later(seconds, run)
        self._timers.add(timer)

    def _end_work(self) -> None:
        if self._working:
            self._working = False
            self._server.in_work -= 1


def _drop(connection: _Connection, fault: Fault) -> None:
    if fault.name == "reset_before":
        connection.transport.abort()
    else:
        connection.transport.close()


def _half(connection: _Connection, content: bytes) -> None:
    connection._send(200, content[: len(content) // 2], promise=len(content))


def _reset_mid_body(connection: _Connection, fault: Fault, content: bytes) -> None:
    _half(connection, content)
    connection._later(0.01, connection.transport.abort)


def _cut_body(connection: _Connection, fault: Fault, content: bytes) -> None:
    _half(connection, content)
    connection.transport.close()


def _slow_headers(connection: _Connection, fault: Fault, content: bytes) -> None:
    connection._later(fault.seconds, lambda: connection._send(200, content))


def _stalled_body(connection: _Connection, fault: Fault, content: bytes) -> None:
    _half(connection, content)
    connection._later(fault.seconds, lambda: connection.transport.write(content[len(content) // 2 :]))


def _wrong_content_type(connection: _Connection, fault: Fault, content: bytes) -> None:
    connection._send(200, b"<html><body>Log in to continue</body></html>", kind="text/html")


_WIRE: dict[str, Callable[[_Connection, Fault, bytes], None]] = {
    "reset_mid_body": _reset_mid_body, "cut_body": _cut_body, "slow_headers": _slow_headers, "stalled_body": _stalled_body,  # noqa: E501
    "wrong_content_type": _wrong_content_type,
}  # fmt: skip


@contextlib.contextmanager
def server_process(*arguments: str, timeout: float = 20.0) -> Iterator[str]:
    """Run the server as its own process; yields its base URL (``http://127.0.0.1:<port>/v1``) and ends it (TERM, then
    KILL).
    """
    command = [sys.executable, "-m", "tests.support.fault_server", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.terminate()
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()


def _load(name: str) -> ReplyFunction:
    module, _, function = name.partition(":")
    loaded: ReplyFunction = getattr(importlib.import_module(module), function)
    return loaded


async def _serve(options: argparse.Namespace) -> None:
    faults = [name for name in options.faults.split(",") if name]
    server = FaultServer(
        reply=_load(options.reply),
        model=options.model,
        latency=options.latency,
        port=options.port,
        record=False,
        capacity=options.capacity,
        choose=share(options.share, faults, options.seed) if faults else None,
    )
    server.script(name for name in options.script.split(",") if name)
    async with server:
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    """Serve until terminated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument(
        "--reply", default="tests.support.fault_server:always_a", help="module:function, body -> text or Answer"
    )
    parser.add_argument("--model", default="fake")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each reply")
    parser.add_argument("--capacity", type=int, default=None, help="requests in work at once; more get 429")
    parser.add_argument("--script", default="", help="faults, one per request, with commas")
    parser.add_argument("--faults", default="", help="faults to draw from, with commas")
    parser.add_argument("--share", type=float, default=0.1, help="share of requests that get one of --faults")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        import uvloop

        run = uvloop.run
    except ImportError:
        run = asyncio.run
    with contextlib.suppress(KeyboardInterrupt):
        run(_serve(options))


if __name__ == "__main__":
    main()
