"""What the service does with requests that are wrong, too large, too slow, too many or gone: an answer, and nothing
left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.envs.interfaces.http_support import ABSTENTION, FOLLOWING, RULES, judged_item, rule_item
from tests.support.fault_server import FaultServer
from tests.support.runs import STRICT
from tests.support.serving import NOWHERE, Service, judged_at, request, serving

from gavel.envs.interfaces.http.gate import HttpOptions

JUDGED = "/v1/abstention/grade"
KEY = "a-key-that-only-this-test-knows"


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def error_of(answer: bytes) -> dict[str, Any]:
    return dict(orjson.loads(answer.partition(b"\r\n\r\n")[2])["error"])


@pytest.mark.parametrize(
    "body", [b"", b"{", b"nonsense", b'{"task": NaN}', b'{"a": "\xff"}', b'{"a":1}{"b":2}', b'"\\ud800"', b"[" * 5000]
)
async def test_a_body_that_is_no_json_is_refused(tmp_path: Path, body: bytes) -> None:
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service:
        status, _, answer = await service.send("POST", RULES, body, **{"Content-Type": "application/json"})
        assert (status, answer["status"]) == (400, "error")
        assert "JSON" in answer["error"]["problem"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "task"),
        ({"task": 3, "reply": "x"}, "task"),
        ({"task": {}}, "reply"),
        ({"task": {}, "reply": 3}, "reply"),
        ({"task": {}, "reply": {"text": "x", "model": "m"}}, "reply.finish_reason"),
        ({"task": {}, "reply": "x", "more": 1}, "more"),
        ({"task": {}, "messages": [{}]}, "messages.0.role"),
        (3, ""),
        ("x", ""),
        (None, ""),
        ({"task": {}, "messages": [{"role": "tool", "content": ""}]}, "messages.0.role"),
    ],
)
async def test_a_document_that_is_no_request_is_refused_by_its_field(tmp_path: Path, body: Any, field: str) -> None:
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service:
        status, answer = await service.post(RULES, body)
    assert (status, answer["error"]["field"]) == (422, field)


@pytest.mark.parametrize("depth", [150, 240, 300, 900, 3000])
async def test_deep_nesting_is_refused_and_never_an_internal_error(tmp_path: Path, depth: int) -> None:
    deep, row = b'{"a":' * depth + b"1" + b"}" * depth, orjson.dumps(rule_item()["task"])[:-1]
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service:
        for body in (
            b'{"task":%s,"reply":"x"}' % deep,
            b'{"task":{},"reply":%s}' % deep,
            b'{"task":%s,"deep":%s},"reply":"x"}' % (row, deep),
        ):
            status, _, answer = await service.send("POST", RULES, body, **{"Content-Type": "application/json"})
            assert status in (200, 400, 422), answer
            status, _, answer = await service.send(
                "POST", RULES, b"[%s]" % body, **{"Content-Type": "application/json"}
            )
            assert status in (200, 400), answer
            assert status == 400 or answer[0]["status"] in ("error", "invalid", "graded")
            assert "internal" not in str(answer)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(
        ["task", "reply", "messages", "role", "content", "schema", "id", "instructions", "language", "llm_judge", "text", "x"],  # noqa: E501
    ), inner, max_size=5),
    max_leaves=12,
)  # fmt: skip


async def test_no_document_makes_the_service_fail(tmp_path: Path) -> None:
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service:
        loop, path = asyncio.get_running_loop(), "/v1/instruction_following"

        @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
        @given(JSON, st.sampled_from(["open", "step", "grade"]))
        def check(value: Any, verb: str) -> None:
            body = json.dumps(value).encode()
            sent = service.send("POST", f"{path}/{verb}", body, **{"Content-Type": "application/json"})
            status, _, answer = asyncio.run_coroutine_threadsafe(sent, loop).result(30)
            assert status in (200, 400, 422)
            if status == 200 and isinstance(value, list):
                assert len(answer) == len(value)

        await asyncio.to_thread(check)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document."""
    yield path
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(part, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


async def test_no_change_of_a_good_item_makes_the_service_fail(tmp_path: Path) -> None:
    items = [
        rule_item(),
        judged_item(),
        {"task": rule_item()["task"], "reply": {"text": "a", "finish_reason": "stop", "model": "m"}},
    ]
    async with serving(*FOLLOWING, "also.abstention=env=abstention " + STRICT, *NOWHERE, folder=tmp_path) as service:
        loop = asyncio.get_running_loop()

        @settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
        @given(st.data())
        def check(data: st.DataObject) -> None:
            number = data.draw(st.integers(0, len(items) - 1))
            path = data.draw(st.sampled_from(list(places(items[number]))))
            body = json.dumps(changed(items[number], path, data.draw(JSON))).encode()
            where = "/v1/abstention/grade" if number == 1 else RULES
            sent = service.send("POST", where, body, **{"Content-Type": "application/json"})
            status, _, answer = asyncio.run_coroutine_threadsafe(sent, loop).result(30)
            assert status in (200, 400, 422)
            assert status != 200 or isinstance(answer, list) or answer["status"] in ("graded", "ungraded", "invalid")

        await asyncio.to_thread(check)


async def test_a_large_body_is_refused_before_it_is_read_and_so_is_one_that_does_not_say_how_large_it_is(
    tmp_path: Path,
) -> None:
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path, options=HttpOptions(max_body_bytes=10_000)) as service:
        fits = orjson.dumps(rule_item(reply="x" * 9000))
        assert status_of(await service.raw(request(RULES, fits, Connection="close"))) == 200
        announced = await service.raw(request(RULES, b"", length=10_001))
        assert status_of(announced) == 413
        assert b"connection: close" in announced.lower()
        assert error_of(announced)["allowed"] == "at most 10000 bytes"
        head = (
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: "
            b"chunked\r\n\r\n" % RULES.encode()
        )
        chunked = await service.raw(
            head + b"".join(b"1000\r\n" + b"x" * 4096 + b"\r\n" for _ in range(4)) + b"0\r\n\r\n"
        )
        assert status_of(chunked) == 413


async def test_a_body_that_is_slow_is_given_up_after_its_time(tmp_path: Path) -> None:
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path, options=HttpOptions(body_timeout=0.3)) as service:
        answer = await service.raw(request(RULES, b'{"task": {', length=400))
        assert status_of(answer) == 408
        assert error_of(answer)["allowed"] == "0.3 seconds"


async def test_a_client_that_does_not_read_its_answer_is_dropped(tmp_path: Path) -> None:
    async with serving(
        *FOLLOWING,
        *NOWHERE,
        folder=tmp_path,
        options=HttpOptions(body_timeout=0.5, max_in_flight=10**5, max_batch=10**5),
    ) as service:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", service.port))
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(client, request(RULES, orjson.dumps([3] * 50_000)))  # an answer of 6 MB
            for connected in (1, 0):
                async with asyncio.timeout(20):
                    while service.running.connections != connected:  # noqa: ASYNC110 - aiohttp tells nobody
                        await asyncio.sleep(0.02)
            got = 0
            with contextlib.suppress(ConnectionResetError):
                while part := await loop.sock_recv(client, 2**20):
                    got += len(part)
        assert got < 6_000_000


async def test_a_connection_that_never_finishes_its_headers_is_closed(tmp_path: Path) -> None:
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path, idle=0.5) as service:
        assert await service.raw(b"POST / HTTP/1.1\r\nHost: local") == b""
        assert await service.raw(b"") == b""


async def test_what_is_no_http_is_refused(tmp_path: Path) -> None:
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service:
        assert status_of(await service.raw(b"\x16\x03\x01\x02\x00\r\n\r\n")) == 400
        bad_chunk = (
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: "
            b"chunked\r\n\r\nzz\r\n" % RULES.encode()
        )
        assert status_of(await service.raw(bad_chunk)) == 400
        assert (await service.post(RULES, rule_item()))[0] == 200


async def test_only_json_without_compression_is_read(tmp_path: Path) -> None:
    body = orjson.dumps(rule_item())
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16", ""):
            status, _, answer = await service.send("POST", RULES, body, **{"Content-Type": kind})
            assert (status, answer["error"]["field"]) == (415, "Content-Type")
        assert (await service.send("POST", RULES, body, **{"Content-Type": "application/json; charset=UTF-8"}))[
            0
        ] == 200
        packed = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        status, _, answer = await service.send("POST", RULES, gzip.compress(body), **packed)
        assert (status, answer["error"]["field"]) == (415, "Content-Encoding")


async def test_paths_and_methods_that_are_not_there_are_answered_in_json(tmp_path: Path) -> None:
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service:
        status, _, answer = await service.send("GET", "/v1/nobody/grade")
        assert (status, answer["error"]["found"]) == (404, "GET /v1/nobody/grade")
        for path, allowed, fix in (
            (
                "/v1/instruction_folowing/grade",
                "instruction_following",
                "did you mean /v1/instruction_following/grade?",
            ),
            ("/v1/instruction_following/grades", "grade, step, open", "did you mean /v1/instruction_following/grade?"),
            ("/v1/zzz/grade", "instruction_following", "see /openapi.json"),
        ):
            status, _, answer = await service.send("POST", path)
            assert (status, answer["error"]["allowed"], answer["error"]["fix"]) == (404, allowed, fix)
        status, headers, answer = await service.send("DELETE", RULES)
        assert (status, headers["Allow"], answer["status"]) == (405, "POST", "error")


async def test_the_key_is_asked_for_on_all_that_grades_and_is_shown_nowhere(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = HttpOptions(api_key=KEY)
    assert KEY not in repr(options)
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path, options=options) as service:
        seen = []
        for header in (
            {},
            {"Authorization": f"Bearer {KEY[:-1]}"},
            {"Authorization": f"Basic {KEY}"},
            {"Authorization": "Bearer \xff"},
        ):
            status, answer = await service.post(RULES, rule_item(), **header)
            assert (status, answer["error"]["field"]) == (401, "Authorization")
            seen.append(str(answer))
        assert (await service.post(RULES, rule_item(), Authorization=f"Bearer {KEY}"))[0] == 200
        for path in ("/healthz", "/openapi.json"):
            status, _, answer = await service.send("GET", path)
            assert status == 200
            seen.append(str(answer))
    assert KEY not in "".join(seen) + capfd.readouterr().out + capfd.readouterr().err


async def test_a_web_page_elsewhere_cannot_use_a_service_on_the_loopback(tmp_path: Path) -> None:
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path, options=HttpOptions(loopback_hosts=True)) as service:
        for host in ("rebound.example", "rebound.example:80", "192.168.1.7"):
            assert (await service.post(RULES, rule_item(), Host=host))[0] == 403
            assert (await service.send("GET", "/healthz", Host=host))[0] == 403
        for host in ("localhost:1", "127.0.0.1", "[::1]:9400"):
            assert (await service.post(RULES, rule_item(), Host=host))[0] == 200


async def test_headers_of_any_bytes_are_answered_in_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body = orjson.dumps(rule_item())
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path, options=HttpOptions(loopback_hosts=True)) as service:
        for name, status in (("Host", 403), ("Content-Type", 415), ("Content-Encoding", 415)):
            headers = {"Connection": "close", name: "@@"}
            answer = await service.raw(request(RULES, body, **headers).replace(b"@@", b"a\xff\xfe"))
            assert (status_of(answer), error_of(answer)["field"]) == (status, name)
            assert "a\ufffd\ufffd" in error_of(answer)["found"]
    assert capfd.readouterr().err == ""


async def test_a_request_that_names_no_host_is_not_taken_for_a_local_one(tmp_path: Path) -> None:
    body = orjson.dumps(rule_item())
    old = (
        b"POST %s HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % (RULES.encode(), len(body))
        + body
    )
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path, options=HttpOptions(loopback_hosts=True)) as service:
        assert status_of(await service.raw(old)) == 403
        assert (await service.post(RULES, rule_item(), Host="LocalHost"))[0] == 200
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service:
        assert status_of(await service.raw(old)) == 200


async def test_more_than_may_be_in_flight_is_told_to_wait_and_a_batch_counts_its_items(tmp_path: Path) -> None:
    options = HttpOptions(max_in_flight=4, max_batch=3, retry_after=2)
    async with (
        FaultServer(latency=30.0) as judge,
        serving(*ABSTENTION, *judged_at(judge.base_url), folder=tmp_path, options=options) as service,
    ):
        status, answer = await service.post(JUDGED, [judged_item()] * 4)
        assert (status, answer["error"]["allowed"]) == (422, "at most 3")
        running = [asyncio.create_task(service.post(JUDGED, [judged_item(n), judged_item(n + 10)])) for n in range(2)]
        await judge.until(4)
        status, headers, answer = await service.send(
            "POST", JUDGED, orjson.dumps(judged_item()), **{"Content-Type": "application/json"}
        )
        assert (status, headers["Retry-After"], answer["error"]["found"]) == (429, "2", "4 items in flight")
        _, _, health = await service.send("GET", "/healthz")
        assert (health["in_flight"], health["refused"]) == (4, {"422": 1, "429": 1})
        for task in running:
            task.cancel()
        await service.idle()


async def test_a_client_that_goes_away_leaves_nothing_running(tmp_path: Path) -> None:
    async with (
        FaultServer(latency=30.0) as judge,
        serving(*ABSTENTION, *judged_at(judge.base_url), folder=tmp_path) as service,
    ):
        body = orjson.dumps([judged_item(number) for number in range(20)])
        _, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(request(JUDGED, body))
        await judge.until(20)
        assert service.gate.in_flight == 20
        writer.transport.abort()
        await service.idle()
        await _no_work(judge)
        others = {task.get_coro().__qualname__ for task in asyncio.all_tasks() if task is not asyncio.current_task()}  # type: ignore[union-attr]
        assert not {name for name in others if "grade" in name or "_item" in name or "complete" in name}, others


async def _no_work(judge: FaultServer) -> None:
    """Wait until the judge works for nobody any more: its callers have hung up."""
    async with asyncio.timeout(10):
        while judge.in_work:  # noqa: ASYNC110 - the count is set in many places
            await asyncio.sleep(0.01)


async def test_clients_that_go_away_while_they_are_answered_leave_no_trace(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with serving(
        *FOLLOWING, *NOWHERE, folder=tmp_path, options=HttpOptions(max_in_flight=10**6, max_batch=10**5)
    ) as service:
        for number in range(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            writer.write(request(RULES, orjson.dumps([3] * 5000 if number % 2 else rule_item(number))))
            await writer.drain()
            if number % 3:
                await reader.read(1000)
            writer.transport.abort()
        await service.idle()
        assert (await service.send("GET", "/healthz"))[2]["refused"] == {}
    assert capfd.readouterr().err == ""


async def test_a_client_that_goes_away_within_its_body_leaves_nothing(tmp_path: Path) -> None:
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service:
        for _ in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", service.port)
            writer.write(request(RULES, b'{"task": {', length=4000))
            await writer.drain()
            writer.transport.abort()
        status, _, health = await service.send("GET", "/healthz")
        assert (status, health["in_flight"]) == (200, 0)
        assert (await service.post(RULES, rule_item()))[1]["status"] == "graded"


async def _held(service: Service, judge: FaultServer, count: int) -> list[asyncio.Task[tuple[int, Any]]]:
    running = [asyncio.create_task(service.post(JUDGED, judged_item(number))) for number in range(count)]
    await judge.until(count)
    return running


async def test_at_the_end_what_is_in_flight_is_finished_and_what_comes_new_is_refused(tmp_path: Path) -> None:
    async with (
        FaultServer(reply=lambda body: "CORRECT", latency=1.0) as judge,
        serving(*ABSTENTION, *judged_at(judge.base_url), folder=tmp_path) as service,
    ):
        running = await _held(service, judge, 5)
        stopping = asyncio.create_task(service.running.stop(20.0))
        await asyncio.sleep(0)
        status, headers, answer = await service.send(
            "POST", JUDGED, orjson.dumps(judged_item()), **{"Content-Type": "application/json"}
        )
        assert (status, answer["error"]["problem"]) == (503, "the service is ending")
        assert headers["Retry-After"] == "1"
        status, _, health = await service.send("GET", "/healthz")
        assert (status, health["status"], health["in_flight"]) == (503, "draining", 5)
        assert [(status, answer["status"]) for status, answer in await asyncio.gather(*running)] == [
            (200, "graded")
        ] * 5
        assert await stopping == 0
        with pytest.raises(OSError, match="onnect"):
            await service.post(JUDGED, judged_item())


async def test_what_takes_longer_than_the_grace_is_answered_503_and_ended(tmp_path: Path) -> None:
    async with (
        FaultServer(latency=30.0) as judge,
        serving(*ABSTENTION, *judged_at(judge.base_url), folder=tmp_path) as service,
    ):
        running = await _held(service, judge, 3)
        assert await service.running.stop(0.2) == 3
        assert [(status, answer["status"]) for status, answer in await asyncio.gather(*running)] == [(503, "error")] * 3
        await _no_work(judge)


async def test_an_internal_error_is_answered_without_its_details_and_spoils_no_other_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from gavel.envs.interfaces.http import work

    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service:
        original = work._read_said

        def broken(item: Any) -> Any:
            if item.get("reply") == "break":
                raise ZeroDivisionError("a detail")
            return original(item)

        monkeypatch.setattr(work, "_read_said", broken)
        status, answer = await service.post(RULES, rule_item(reply="break"))
        assert (status, answer["error"]["problem"]) == (500, "internal error: ZeroDivisionError")
        status, answers = await service.post(RULES, [rule_item(), rule_item(reply="break"), rule_item()])
        assert (status, [answer["status"] for answer in answers]) == (200, ["graded", "error", "graded"])
        assert (await service.send("GET", "/healthz"))[2]["in_flight"] == 0
    assert "a detail" in capfd.readouterr().err


async def test_bodies_that_never_end_are_bounded_together_and_hold_no_other_client_up(tmp_path: Path) -> None:
    bound, part = 2_000_000, b"x" * 100_000
    options = HttpOptions(max_bodies_bytes=bound, body_timeout=60)
    async with (
        serving(*FOLLOWING, *NOWHERE, folder=tmp_path, options=options) as service,
        contextlib.AsyncExitStack() as open_,
    ):
        head = request(RULES, part, length=200_000)
        readers = []
        for _ in range(200):  # 20 MB in all
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            open_.callback(writer.close)
            writer.write(head)
            readers.append(reader)
        answers = [asyncio.create_task(reader.read()) for reader in readers]
        await asyncio.wait(answers, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        while len(done := [one for one in answers if one.done()]) < 200 - bound // len(part):
            await asyncio.wait(
                [one for one in answers if not one.done()], timeout=30, return_when=asyncio.FIRST_COMPLETED
            )
        assert {status_of(one.result()) for one in done} == {503}
        assert all(b"retry-after: 1" in one.result().lower() for one in done)
        assert len(done) <= 200 - bound // len(part) + 5  # what arrives within the bound is waited for
        assert (await service.post(RULES, rule_item()))[0] == 200  # another client, while the bound is used up
        writers_left = [one for one in answers if not one.done()]
        for one in writers_left:
            one.cancel()
        await asyncio.wait(writers_left)
