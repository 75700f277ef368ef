"""An instant chat completions server for benchmarks: a raw protocol, so that it is never what is measured.

The model's name decides the reply: a request that names ``instant-judge`` gets ``--judge``, any other ``--policy``.
Prints the port.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import cast

import uvloop


def _response(model: str, text: str) -> bytes:
    body = json.dumps(
        {
            "id": "chatcmpl-0",
            "object": "chat.completion",
            "created": 0,
            "model": model,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 8, "total_tokens": 108},
        }
    ).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


class Server(asyncio.Protocol):
    """One connection: reads whole requests, answers each after ``delay`` seconds."""

    def __init__(self, policy: bytes, judge: bytes, delay: float) -> None:
        self._policy, self._judge, self._delay = policy, judge, delay
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._buffer[:end]).lower()
            at = head.find(b"content-length:")
            size = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._buffer) < end + 4 + size:
                return
            body = bytes(self._buffer[end + 4 : end + 4 + size])
            del self._buffer[: end + 4 + size]
            self._answer(self._judge if b"instant-judge" in body else self._policy)

    def _answer(self, response: bytes) -> None:
        assert self._transport is not None
        if self._delay:
            asyncio.get_running_loop().call_later(self._delay, self._transport.write, response)
        else:
            self._transport.write(response)


async def serve(policy: str, judge: str, delay: float) -> None:
    """Serve until killed, on a free port of the loopback."""
    replies = _response("instant-policy", policy), _response("instant-judge", judge)
    server = await asyncio.get_running_loop().create_server(
        lambda: Server(*replies, delay), "127.0.0.1", 0, backlog=4096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="The answer is \\boxed{something}")
    parser.add_argument("--judge", default="A")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds per call")
    options = parser.parse_args()
    uvloop.run(serve(options.policy, options.judge, options.delay))
