"""The published document is true: what it allows is taken, what it forbids is refused, and every answer is as it
says.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator
from tests.envs.interfaces.http_support import ABSTENTION, FOLLOWING, judge_all, judged_item, rule_item
from tests.support.fault_server import FaultServer
from tests.support.serving import NOWHERE, judged_at, serving

from gavel.envs.interfaces.http.gate import HttpOptions
from gavel.envs.interfaces.http.openapi import make_document

needs_schemathesis = pytest.mark.skipif(
    importlib.util.find_spec("schemathesis") is None, reason="no schemathesis, which the extra `dev` installs"
)  # fmt: skip


@needs_schemathesis
@pytest.mark.timeout(600)
async def test_schemathesis_finds_no_failure_no_hang_and_nothing_against_the_document(tmp_path: Path) -> None:
    words = (*ABSTENTION, "also.following=env=instruction_following")
    options = HttpOptions(max_batch=5, loopback_hosts=True)
    async with (
        FaultServer(reply=judge_all) as judge,
        serving(*words, *judged_at(judge.base_url), folder=tmp_path, options=options) as service,
    ):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "schemathesis.cli",
            "run",
            f"{service.url}/openapi.json",
            "--checks",
            "all",
            "--no-color",
            "--max-examples",
            "15",
            "--seed",
            "1",
            "--request-timeout",
            "20",
            "--max-response-time",
            "15",
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            out, _ = await asyncio.wait_for(process.communicate(), 500)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, out.decode()[-6000:]
        assert b"Tested: 7" in out, out.decode()[-2000:]
        _, _, health = await service.send("GET", "/healthz")
        assert "500" not in health["refused"]
        assert health["in_flight"] == 0
        assert (await service.post("/v1/abstention/grade", judged_item()))[1]["status"] == "graded"


def validator(described: Mapping[str, Any], path: str, status: str) -> Any:
    schema = described["paths"][path]["post"]["responses"][status]["content"]["application/json"]["schema"]
    return Draft202012Validator({**schema, "components": described["components"]})


async def test_real_answers_of_every_status_are_as_the_document_says(tmp_path: Path) -> None:
    fails = {"next": False}
    async with (
        FaultServer(reply=judge_all, choose=lambda body, n: "503" if fails["next"] else None) as judge,
        serving(*ABSTENTION, *judged_at(judge.base_url), folder=tmp_path, options=HttpOptions(max_batch=3)) as service,
    ):
        _, _, described = await service.send("GET", "/openapi.json")
        item, path = judged_item(), "/v1/abstention/grade"
        seen = [await service.post(path, item), await service.post(path, [item, {"task": {}, "reply": "x"}, 3])]
        fails["next"] = True
        seen += [
            await service.post(path, judged_item(7)),
            await service.post(path, {}),
            await service.post(path, [1] * 4),
        ]
        seen.append((await service.send("POST", path, b"{", **{"Content-Type": "application/json"}))[::2])
        for status, answer in seen:
            found = [str(error) for error in validator(described, path, str(status)).iter_errors(answer)]
            assert found == [], answer
        said = orjson.dumps([answer for _, answer in seen]).decode()
        assert all(f'"status":"{status}"' in said for status in ("graded", "ungraded", "invalid", "error"))
        for verb in ("open", "step"):
            status, answer = await service.post(
                f"/v1/abstention/{verb}", {"task": item["task"]} if verb == "open" else item
            )
            assert list(validator(described, f"/v1/abstention/{verb}", str(status)).iter_errors(answer)) == []


async def test_the_document_names_every_route_its_bounds_and_the_key_where_one_is_asked_for(tmp_path: Path) -> None:
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service:
        _, headers, described = await service.send("GET", "/openapi.json")
    assert headers["Content-Type"] == "application/json"
    assert described["openapi"].startswith("3.1")
    routes = {f"/v1/instruction_following/{verb}" for verb in ("open", "step", "grade")}
    assert set(described["paths"]) == {*routes, "/healthz", "/openapi.json"}
    assert "security" not in described
    closed = make_document(["x"], HttpOptions(api_key="k", max_batch=7), {})
    assert closed["security"] == [{"key": []}]
    operation = closed["paths"]["/v1/x/grade"]["post"]
    assert "401" in operation["responses"]
    (batch,) = [
        one for one in operation["requestBody"]["content"]["application/json"]["schema"]["anyOf"] if "maxItems" in one
    ]
    assert batch["maxItems"] == 7
    assert "graded" in orjson.dumps(closed).decode()


async def test_a_number_written_as_a_float_is_the_integer_it_is(tmp_path: Path) -> None:
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service:
        usage = {"prompt_tokens": 3.0, "completion_tokens": 4.0}
        reply = {"text": "no comma", "finish_reason": "stop", "model": "m", "usage": usage}
        status, answer = await service.post("/v1/instruction_following/grade", {**rule_item(), "reply": reply})
        assert (status, answer["status"]) == (200, "graded")
        reply["usage"] = {"prompt_tokens": 3.5}
        status, answer = await service.post("/v1/instruction_following/grade", {**rule_item(), "reply": reply})
        assert (status, answer["error"]["field"]) == (422, "reply.usage.prompt_tokens")
