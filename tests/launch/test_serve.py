"""``gavel serve`` as a process: one line when it listens, an end that loses nothing, and refusals before anything is
started.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.envs.interfaces.http_support import ABSTENTION, FOLLOWING, RULES, judged_item, rule_item
from tests.support.fake_vllm import fake_python, model_directory
from tests.support.fault_server import FaultServer
from tests.support.processes import alive, wait_until
from tests.support.runs import gavel, start
from tests.support.serving import NOWHERE, judged_at

from gavel.envs.interfaces.http.gate import HttpOptions
from gavel.envs.interfaces.http.openapi import make_document
from gavel.launch.cli.command_line import main
from gavel.launch.config.serving_schema import HttpConfig
from gavel.models.vllm.supervisor import find_descendants

KEY = "only-the-variable-holds-this"


@contextlib.asynccontextmanager
async def service(*words: str, **options: Any) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A ``gavel serve`` that listens; gives the process and its URL."""
    process = await start("serve", "http.port=0", *words, **options)
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        found = re.search(r"at (http://\S+:\d+) ", line)
        assert found, line + (await process.stderr.read()).decode()  # type: ignore[union-attr]
        yield process, found[1]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def post(url: str, path: str, value: Any, **headers: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.post(url + path, json=value, headers=headers) as response:
        return response.status, await response.json()


async def get(url: str, path: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(url + path) as response:
        return await response.json()


def children(pid: int) -> list[int]:
    """The processes that a process has started and that still run."""
    return [int(number) for file in Path(f"/proc/{pid}/task").glob("*/children") for number in file.read_text().split()]


async def test_it_grades_and_a_sigterm_ends_it_after_what_is_in_flight(tmp_path: Path) -> None:
    async with (
        FaultServer(reply=lambda body: "CORRECT", latency=1.0) as judge,
        service(*ABSTENTION, "also.following=env=instruction_following", *judged_at(judge.base_url), cwd=tmp_path) as (
            process,
            url,
        ),
    ):
        _, quick = await post(url, "/v1/following/grade", rule_item())
        assert quick["reward"]["value"] == 1.0
        workers = children(process.pid)
        assert workers, "the fast checks run in processes of their own"
        running = asyncio.create_task(post(url, "/v1/abstention/grade", judged_item()))
        await judge.until(1)
        process.send_signal(signal.SIGTERM)
        status, answer = await running
        assert (status, answer["status"], answer["reward"]["value"]) == (200, "graded", 1.0)
        assert await asyncio.wait_for(process.wait(), 20) == 0
        wait_until(lambda: not any(alive(pid) for pid in workers), 10, "the workers are gone")
        assert process.stdout is not None
        assert process.stderr is not None
        assert "ending" in (await process.stdout.read()).decode()
        assert (await process.stderr.read()).decode() == ""
    assert not list(tmp_path.iterdir()), "a service without servers of its own writes nothing"


async def test_a_second_signal_ends_what_is_in_flight_at_once(tmp_path: Path) -> None:
    async with (
        FaultServer(latency=60.0) as judge,
        service(*ABSTENTION, *judged_at(judge.base_url), cwd=tmp_path) as (process, url),
    ):
        running = asyncio.create_task(post(url, "/v1/abstention/grade", judged_item()))
        await judge.until(1)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        while b"ending" not in (line := await asyncio.wait_for(process.stdout.readline(), 10)):
            assert line
        process.send_signal(signal.SIGINT)
        assert (await running)[0] == 503
        assert await asyncio.wait_for(process.wait(), 10) == 0


async def test_signals_that_come_while_it_ends_do_not_break_it_off(tmp_path: Path) -> None:
    async with service(*FOLLOWING, *NOWHERE, cwd=tmp_path) as (process, url):
        await post(url, RULES, rule_item())
        workers = children(process.pid)
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(ProcessLookupError):
            while process.returncode is None and any(alive(pid) for pid in workers):
                process.send_signal(signal.SIGTERM)
                await asyncio.sleep(0.001)
        assert await asyncio.wait_for(process.wait(), 20) == 0


async def test_a_killed_client_leaves_nothing_running(tmp_path: Path) -> None:
    client = (
        "import asyncio, json, sys; from gavel.envs.interfaces.http.client import GavelClient\n"
        "async def go():\n"
        "    items = json.loads(sys.argv[2])\n"
        "    async with GavelClient(sys.argv[1], 'abstention') as client:\n"
        "        await asyncio.gather(*(client.grade(item['task'], item['reply']) for item in items))\n"
        "asyncio.run(go())"
    )
    items = json.dumps([judged_item(number) for number in range(30)])
    async with (
        FaultServer(latency=60.0) as judge,
        service(*ABSTENTION, *judged_at(judge.base_url), cwd=tmp_path) as (process, url),
    ):
        killed = await asyncio.create_subprocess_exec(sys.executable, "-c", client, url, items)
        await judge.until(30, timeout=30)
        assert (await get(url, "/healthz"))["in_flight"] == 30
        killed.kill()
        await killed.wait()
        async with asyncio.timeout(10):
            while (health := await get(url, "/healthz"))["in_flight"] or judge.in_work:  # noqa: ASYNC110 - in another process
                await asyncio.sleep(0.02)
        assert health["services"]["judge"] == {"in_flight": 0, "waiting": 0, "problem": ""}
        assert health["environments"]["abstention"]["ungraded"] == {}
        assert process.returncode is None


async def test_a_killed_service_leaves_no_worker(tmp_path: Path) -> None:
    async with service(*FOLLOWING, *NOWHERE, cwd=tmp_path) as (process, url):
        await post(url, "/v1/instruction_following/grade", rule_item())
        workers = children(process.pid)
        assert workers
        process.kill()
        await process.wait()
        wait_until(lambda: not any(alive(pid) for pid in workers), 10, "the workers are gone")


async def test_the_key_comes_from_its_variable_and_is_printed_nowhere(tmp_path: Path) -> None:
    words = (*FOLLOWING, *NOWHERE, "http.host=0.0.0.0", "http.api_key_env=MY_SERVICE_KEY")
    async with service(*words, cwd=tmp_path, env={**os.environ, "MY_SERVICE_KEY": KEY}) as (process, url):
        url = url.replace("0.0.0.0", "127.0.0.1")
        path = "/v1/instruction_following/grade"
        assert (await post(url, path, rule_item()))[0] == 401
        assert (await post(url, path, rule_item(), Authorization=f"Bearer {KEY}"))[0] == 200
        assert KEY not in str(await get(url, "/healthz")) + str(await get(url, "/openapi.json"))
        process.send_signal(signal.SIGTERM)
        out, err = await process.communicate()
        assert KEY not in (out + err).decode()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("http.host=0.0.0.0",), "http.host: other machines could use this service without a key"),
        (("http.api_key_env=NOT_SET_ANYWHERE",), "http.api_key_env: the variable that should hold the key is not set"),
        (("http.api_key_env=sk-abcdef0123456789abcdef",), "http.api_key_env: this looks like a key itself"),
        (("http.max_batch=600",), "http.max_batch: this value does not fit"),
        (("http.port=70000",), "http.port: this value does not fit"),
        (("http.prot=1",), "did you mean `http.port`"),
        (("http.max_in_flight=10000000000000000000000",), "http.max_in_flight: this number is too large"),
        (("http.max_body_mib=1e-9",), "http.max_body_mib: this value does not fit"),
        (("also.x='env=abstention \"reward=tiered'",), "also.x: a quotation is not closed"),
        (("also.abstention=env=vera_mh",), "also.abstention: this name is taken"),
        (("also.x=env=nothing",), "also.x: env: there is no such choice"),
        (("also.x=judge=smollm2",), "also.x: this is shared by every environment"),
        (("also.x=env=instruction_following env.short_circiut=true",), "env.short_circuit"),
        (("also.a/b=env=instruction_following",), "path"),
        (("name=a/b",), "name: this name cannot stand in a path"),
        (
            ("services.other.mode=external", "services.other.base_url=http://127.0.0.1:1/v1", "services.other.model=m"),
            "no environment uses",
        ),
        (("reward=nothing",), "reward"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_started(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *ABSTENTION, *NOWHERE, *words]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == ""


async def test_an_address_that_is_taken_is_said_so(tmp_path: Path) -> None:
    async with service(*FOLLOWING, *NOWHERE, cwd=tmp_path) as (_, url):
        port = url.rpartition(":")[2]
        done = await gavel("serve", *FOLLOWING, *NOWHERE, f"http.port={port}", cwd=tmp_path)
        assert done.code == 2
        assert "this address cannot be had" in done.err
        assert f"127.0.0.1:{port}" in done.err
    nowhere = await gavel(
        "serve", *FOLLOWING, *NOWHERE, "http.host=nobody.invalid", "http.without_key=true", "http.port=0", cwd=tmp_path
    )
    assert nowhere.code == 2
    assert "http.host: this address cannot be had" in nowhere.err


def test_a_dry_run_says_what_would_be_served_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    also = "also.talks=['env=vera_mh','rubrics.vera_mh.profile=gavel/vera-mh-small']"
    words = (*ABSTENTION, *NOWHERE, "also.following=env=instruction_following reward=mean", "dry_run=true")
    assert main(["serve", *words]) == 0
    out = capsys.readouterr().out
    for line in (
        "/v1/abstention",
        "/v1/following",
        "reward mean",
        "none for thinking",
        "127.0.0.1:9400",
        "http://127.0.0.1:1/v1",
    ):
        assert line in out
    simulators = [
        f"services.{name}.{key}"
        for name in ("simulator_gpt", "simulator_claude")
        for key in ("mode=external", "base_url=http://127.0.0.1:1/v1", "model=m")
    ]
    assert main(["serve", *words, also, *simulators]) == 0
    assert "/v1/talks" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_a_closed_network_may_be_served_without_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("http.host=0.0.0.0", "http.without_key=true", "dry_run=true")
    assert main(["serve", *ABSTENTION, *NOWHERE, *words]) == 0
    assert "none is asked for" in capsys.readouterr().out


def test_an_experiment_serves_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "experiment=demo", "dry_run=true"]) == 0
    assert "/v1/abstention" in capsys.readouterr().out
    assert main(["serve", "experiment=demo_vera_mh", "dry_run=true"]) == 0
    assert "/v1/vera_mh" in capsys.readouterr().out


async def test_the_example_of_the_page_prints_what_the_page_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    example = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "import asyncio" in block)
    (printed,) = re.findall(r"^prints `([^`]+)`", page, re.MULTILINE)
    (tmp_path / "example.py").write_text(example)
    async with (
        FaultServer(reply=lambda body: "CORRECT") as judge,
        service(*ABSTENTION, *judged_at(judge.base_url), cwd=tmp_path) as (_, url),
    ):
        run = await asyncio.create_subprocess_exec(
            sys.executable,
            str(tmp_path / "example.py"),
            url,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await run.communicate()
    assert (out.decode().strip(), run.returncode) == (printed, 0), err.decode()


def test_the_page_says_every_bound_with_its_default_and_every_status() -> None:
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    stated = dict(re.findall(r"^\| `http\.(\w+)` \| (\d+)", page, re.MULTILINE))
    defaults = HttpConfig()
    assert stated == {name: f"{getattr(defaults, name):g}" for name in stated}
    assert len(stated) == 7
    described = make_document(["x"], HttpOptions(loopback_hosts=True), {})["paths"]["/v1/x/grade"]["post"]["responses"]
    errors = re.findall(r"^\| (\d{3}(?:, \d{3})*) \|", page, re.MULTILINE)
    assert {number for cell in errors for number in cell.split(", ")} == {*described, "401", "404", "405", "500"} - {
        "200"
    }


async def test_a_judge_served_here_is_started_and_its_death_ends_the_service(tmp_path: Path) -> None:
    judge = (
        "judge=smollm2",
        f"judge.model={model_directory(tmp_path / 'tiny')}",
        f"judge.python={fake_python(tmp_path / 'bin')}",
    )
    process = await start("serve", "http.port=0", *ABSTENTION, *judge, f"run.dir={tmp_path / 'run'}", cwd=tmp_path)
    assert process.stdout is not None
    try:
        url = None
        while url is None:
            line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
            assert line, (await process.stderr.read()).decode()  # type: ignore[union-attr]
            found = re.search(r"serving abstention at (http://\S+:\d+) ", line)
            url = found[1] if found else None
        _, answer = await post(url, "/v1/abstention/grade", judged_item())
        assert answer["receipts"], "the judge that was started here was asked"
        supervisor = next(pid for pid in children(process.pid) if find_descendants(pid))
        os.kill(find_descendants(supervisor)[0], signal.SIGKILL)
        assert await asyncio.wait_for(process.wait(), 30) == 4
        assert b"was killed by SIGKILL" in await process.stdout.read()
        assert (tmp_path / "run" / "logs").is_dir()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_every_answer_to_64_clients_at_once_is_a_grade(tmp_path: Path) -> None:
    bench = Path(__file__).parents[2] / "benchmarks" / "serve_throughput.py"
    run = await asyncio.create_subprocess_exec(
        sys.executable, str(bench), "--seconds", "1", stdout=asyncio.subprocess.PIPE, cwd=tmp_path
    )
    out, _ = await asyncio.wait_for(run.communicate(), 120)
    figures = json.loads(out[: out.index(b"}") + 1])
    assert figures["answers that were no grade"] == 0
    assert figures["gradings/s, one a request"] > 0


async def slowest_health(url: str, until: asyncio.Task[Any]) -> float:
    """Return the longest that ``/healthz`` took, in seconds, asked again and again until a task is done."""
    slowest = 0.0
    async with aiohttp.ClientSession() as session:
        while not until.done():
            began = time.perf_counter()
            async with session.get(f"{url}/healthz") as response:
                assert response.status == 200
            slowest = max(slowest, time.perf_counter() - began)
            await asyncio.sleep(0.005)
    return slowest


@pytest.mark.parametrize("unit", ["x <\n", "a\u200e", "<", "<candidate>", "\\boxed{", "<think >", "\u05d0\u200f"])
async def test_the_service_answers_while_a_megabyte_of_hostile_text_is_in_work(unit: str) -> None:
    async with (
        FaultServer(reply=lambda body: "INCORRECT") as judge,
        service(*ABSTENTION, *judged_at(judge.base_url)) as (_, url),
    ):
        # As large, and nothing to do: what the transport and this machine cost.
        plain = asyncio.create_task(post(url, "/v1/abstention/grade", judged_item(0, "a " * 500_000)))
        idle = await slowest_health(url, plain)
        hostile = unit + unit[-1] * 500_000 + unit * (500_000 // len(unit)) + "x"
        work = asyncio.create_task(post(url, "/v1/abstention/grade", judged_item(1, hostile)))
        busy = await slowest_health(url, work)
        assert (await work)[0] == 200
    assert busy < 0.2 + 3 * idle, (busy, idle)
