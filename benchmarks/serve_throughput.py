"""Gradings per second of one ``gavel serve`` over rows that rules alone decide, asked by 64 clients in a process of
their own.

    python benchmarks/serve_throughput.py              # one item a request, then batches; exits 1 where the bar is
    missed
    python benchmarks/serve_throughput.py --seconds 5 --words 300

Each client sends its next request when it has read the last answer. The clients are raw sockets, so that they are not
what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import cast

import orjson
import uvloop

BAR = 1000.0
_TICK = os.sysconf("SC_CLK_TCK")


def items(words: int) -> list[bytes]:
    """Return 97 different requests: a source row with three rules, and a reply of ``words`` words."""
    made: list[bytes] = []
    common: dict[str, object] = {"source": "user", "is_misalignment_check": False}
    for number in range(97):
        rules: list[dict[str, object]] = [
            {"instruction_id": "keywords:existence", "keywords": ["bread", "bell"]},
            {"instruction_id": "length_constraints:number_words", "relation": "at least", "num_words": 40},
            {"instruction_id": "punctuation:no_comma"},
        ]
        row = {
            "id": f"bench-{number}",
            "language": "en",
            "llm_judge": [],
            "instructions": [{"uid": place, **common, **rule} for place, rule in enumerate(rules)],
            "responses_create_params": {
                "input": [{"role": "user", "content": f"Describe the market of village {number}."}]
            },
        }
        sentence = f"At dawn the bell of village {number} rings and warm bread is carried over the square. "
        reply = (sentence * (words // len(sentence.split()) + 1)).strip()
        made.append(orjson.dumps({"task": row, "reply": reply}))
    return made


class Client(asyncio.Protocol):
    """One connection that asks until ``until``, and notes how long each answer took."""

    def __init__(self, requests: list[bytes], first: int, until: float, done: asyncio.Future[None]) -> None:
        self._requests, self._next, self._until, self._done = requests, first, until, done
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._sent = 0.0
        self.seconds: list[float] = []
        self.bad = 0

    def itself(self) -> Client:
        """Be its own factory."""
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def _ask(self) -> None:
        assert self._transport is not None
        now = time.perf_counter()
        if now >= self._until:
            self._transport.close()
            return
        self._sent = now
        self._transport.write(self._requests[self._next % len(self._requests)])
        self._next += 1

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end]).lower()
        size = int(head[head.find(b"content-length:") + 15 :].split(b"\r\n", 1)[0])
        if len(self._buffer) < end + 4 + size:
            return
        self.seconds.append(time.perf_counter() - self._sent)
        if b" 200 " not in head[:20] or b'"status":"graded"' not in self._buffer:
            self.bad += 1
        self._buffer.clear()
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if not self._done.done():
            self._done.set_result(None)


async def ask(port: int, bodies: list[bytes], clients: int, seconds: float) -> dict[str, float]:
    """Let ``clients`` ask for ``seconds``; return what they saw."""
    head = "POST /v1/instruction_following/grade HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    requests = [f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies]
    loop, begun = asyncio.get_running_loop(), time.perf_counter()
    made, ends = [], []
    for number in range(clients):
        done: asyncio.Future[None] = loop.create_future()
        client = Client(requests, number, begun + seconds, done)
        await loop.create_connection(client.itself, "127.0.0.1", port)
        made.append(client)
        ends.append(done)
    await asyncio.gather(*ends)
    wall = time.perf_counter() - begun
    taken = sorted(second for client in made for second in client.seconds)
    share = lambda part: taken[min(len(taken) - 1, int(part * len(taken)))] * 1000  # noqa: E731
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "requests": len(taken),
        "rate": len(taken) / wall,
        "p50_ms": share(0.5),
        "p99_ms": share(0.99),
        "bad": sum(client.bad for client in made),
        "client_cpu_s": usage.ru_utime + usage.ru_stime,
    }


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process, its ended children left out."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def workers_of(pid: int) -> list[int]:
    """Return the processes that a service has started."""
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


def measure(port: int, batch: int, options: argparse.Namespace) -> dict[str, float]:
    """Run the clients in a process of their own."""
    words = [
        "--as-client",
        str(port),
        "--batch",
        str(batch),
        "--clients",
        str(options.clients),
        "--words",
        str(options.words),
    ]
    command = [sys.executable, __file__, *words, "--seconds", str(options.seconds)]
    return dict(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def as_client(options: argparse.Namespace) -> None:
    """Be the clients' process."""
    singles = items(options.words)
    bodies = singles
    if options.batch > 1:
        bodies = [
            b"[" + b",".join(singles[(start + place) % 97] for place in range(options.batch)) + b"]"
            for start in range(97)
        ]
    found = asyncio.Runner(loop_factory=uvloop.new_event_loop).run(
        ask(options.as_client, bodies, options.clients, options.seconds)
    )
    print(json.dumps(found))


def main() -> int:
    """Start a service, ask it, print, compare with the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--words", type=int, default=120, help="words of each reply")
    parser.add_argument("--batch", type=int, default=16, help="items of a batch, in the second figure")
    parser.add_argument("--as-client", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_client:
        as_client(options)
        return 0
    command = [
        sys.executable,
        "-m",
        "gavel.launch.cli",
        "serve",
        "env=instruction_following",
        "http.port=0",
        "http.max_in_flight=4096",
        "judge.base_url=http://127.0.0.1:1/v1",
        "judge.model=never-asked",
    ]
    with tempfile.TemporaryDirectory() as folder:
        service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
        try:
            assert service.stdout is not None
            line = service.stdout.readline()
            port = int(line.partition("http://127.0.0.1:")[2].split()[0].rstrip("/"))
            measure(port, 1, argparse.Namespace(**{**vars(options), "seconds": 1.0}))  # the workers start, caches fill
            workers = workers_of(service.pid)
            before, idle = cpu_seconds(service.pid), sum(map(cpu_seconds, workers))
            one = measure(port, 1, options)
            spent, worked = cpu_seconds(service.pid) - before, sum(map(cpu_seconds, workers)) - idle
            many = measure(port, options.batch, options)
        finally:
            service.terminate()
            service.wait(10)
    figures = {
        "gradings/s, one a request": one["rate"],
        "p50 (ms)": one["p50_ms"],
        "p99 (ms)": one["p99_ms"],
        "the service's own CPU a grading (ms)": 1000 * spent / one["requests"],
        "its workers' CPU a grading (ms)": 1000 * worked / one["requests"],
        "the clients' CPU a grading (ms)": 1000 * one["client_cpu_s"] / one["requests"],
        f"gradings/s, {options.batch} a request": many["rate"] * options.batch,
        f"p99 of a request of {options.batch} (ms)": many["p99_ms"],
        "answers that were no grade": one["bad"] + many["bad"],
    }
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}, indent=2))
    met = one["rate"] >= BAR and not one["bad"] + many["bad"]
    print("the bar is met" if met else f"missed: {BAR:g} gradings/s, each a grade")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
