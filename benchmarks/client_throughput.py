"""How much of bare aiohttp's throughput the chat client keeps, and what a call costs in CPU; the OpenAI SDK beside it.

    python -m benchmarks.client_throughput [--calls 20000] [--in-flight 512] [--latency-ms 50]

A stub in its own process answers every call after the latency. Bare aiohttp sends prepared bodies and parses the
replies; the client does the same with admission, single flight, receipts and digests on, once with temperature unset
and once with 0 (equal calls share). The rounds alternate, the best of each counts, so that another user of the machine
hurts both alike. Ends with 1 if the client keeps less than 60 % or takes more than 0.2 ms of CPU a call. The SDK is
measured on fewer calls, and skipped where it is not installed.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import aiohttp
import orjson
from tests.support.fault_server import server_process

from gavel.models.calls.client import ChatClient
from gavel.models.service import Service
from gavel.models.types import ChatRequest, Message, Sampling

KEPT_AT_LEAST = 0.6
CPU_MS_AT_MOST = 0.2
WORDS = "word " * 400  # 2 KB, a judge's prompt
ROUNDS = 3

Call = Callable[[int], Awaitable[object]]


@dataclass(frozen=True)
class Figure:
    """Calls a second and milliseconds of CPU a call."""

    rate: float
    cpu_ms: float


async def measure(call: Call, calls: int, in_flight: int) -> Figure:
    """Keep ``in_flight`` calls going until ``calls`` were made; each number is asked once."""

    async def worker(first: int) -> None:
        for n in range(first, calls, in_flight):
            await call(n)

    await asyncio.gather(*(call(-1 - n) for n in range(in_flight)))  # connections open, caches warm
    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker(n) for n in range(in_flight)))
    return Figure(calls / (time.perf_counter() - wall), (time.process_time() - cpu) / calls * 1000)


async def bare(base_url: str, calls: int, in_flight: int) -> Figure:
    """Aiohttp and orjson, nothing else."""
    connector, jar = aiohttp.TCPConnector(limit=0), aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(
        connector=connector, cookie_jar=jar, headers={"Content-Type": "application/json"}
    ) as session:

        async def call(n: int) -> object:
            body = {"model": "fake", "messages": [{"role": "user", "content": f"{WORDS}{n}"}], "max_tokens": 64}
            async with session.post(f"{base_url}/chat/completions", data=orjson.dumps(body)) as response:
                return orjson.loads(await response.read())

        return await measure(call, calls, in_flight)


async def client(base_url: str, calls: int, in_flight: int, temperature: float | None) -> Figure:
    """Our client with everything on."""
    service = Service(
        mode="external", model="fake", base_url=base_url, max_in_flight=in_flight, max_context_length=8192
    )
    sampling = Sampling(temperature=temperature, max_response_tokens=64)
    async with ChatClient("judge", service) as model:
        return await measure(
            lambda n: model.complete(ChatRequest((Message("user", f"{WORDS}{n}"),), "judge", sampling)),
            calls,
            in_flight,
        )


async def sdk(base_url: str, calls: int, in_flight: int) -> Figure | None:
    """The OpenAI SDK with one shared client, or None where it is not installed."""
    try:
        openai = importlib.import_module("openai")
    except ImportError:
        return None
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as model:

        async def call(n: int) -> object:
            message = {"role": "user", "content": f"{WORDS}{n}"}
            return await model.chat.completions.create(model="fake", messages=[message], max_tokens=64)

        return await measure(call, calls, in_flight)


def best(figures: list[Figure]) -> Figure:
    """Return the highest rate and the lowest CPU of several rounds."""
    return Figure(max(figure.rate for figure in figures), min(figure.cpu_ms for figure in figures))


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--in-flight", type=int, default=512)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    options = parser.parse_args()
    try:
        from uvloop import run
    except ImportError:
        from asyncio import run
    calls, in_flight = options.calls, options.in_flight
    bares, unset, zero = [], [], []
    with server_process("--latency", str(options.latency_ms / 1000)) as url:
        for _ in range(ROUNDS):
            bares.append(run(bare(url, calls, in_flight)))
            unset.append(run(client(url, calls, in_flight, None)))
            zero.append(run(client(url, calls, in_flight, 0.0)))
        beside = run(sdk(url, max(calls // 20, in_flight), in_flight))
    reference = best(bares)
    print(f"{calls} calls, {in_flight} in flight, {options.latency_ms:g} ms latency, best of {ROUNDS} rounds")
    print(f"{'':<28}{'calls/s':>9}{'CPU ms/call':>13}{'of bare':>9}")
    named = {"bare aiohttp": reference, "client": best(unset), "client, temperature 0": best(zero)}
    for name, figure in named.items() if beside is None else {**named, "OpenAI SDK": beside}.items():
        print(f"{name:<28}{figure.rate:>9.0f}{figure.cpu_ms:>13.3f}{figure.rate / reference.rate:>9.0%}")
    if beside is None:
        print("OpenAI SDK: not measured, the package openai is not installed")
    worst = Figure(min(best(unset).rate, best(zero).rate), max(best(unset).cpu_ms, best(zero).cpu_ms))
    passed = worst.rate >= KEPT_AT_LEAST * reference.rate and worst.cpu_ms <= CPU_MS_AT_MOST
    print(f"{'pass' if passed else 'FAIL'}: bars are {KEPT_AT_LEAST:.0%} of bare aiohttp and {CPU_MS_AT_MOST} ms")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
