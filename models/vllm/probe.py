"""Asking a server whether it lives, which model it serves, and whether it can answer; never more than one token is
generated.
"""

from __future__ import annotations

import json
from typing import Any

import aiohttp

READY_REQUEST_TIMEOUT_S = 300.0
"""The first completion may compile kernels."""


class ProbeFailed(Exception):
    """The server did not answer as a live server of this model does; the text says how."""


async def check_health(session: aiohttp.ClientSession, root: str, timeout: float) -> None:
    """Ask ``/health``, which generates nothing.

    Raises:
        ProbeFailed: no connection, no answer within ``timeout`` seconds, or another status than 200.
    """
    await _fetch_body(session, "GET", f"{root}/health", None, timeout)


async def check_served_model(session: aiohttp.ClientSession, root: str, model: str, timeout: float) -> None:
    """Check that ``/v1/models`` names ``model``.

    Raises:
        ProbeFailed: it names others.
    """
    answer = _parse_object(await _fetch_body(session, "GET", f"{root}/v1/models", None, timeout))
    names = [entry.get("id") for entry in answer.get("data") or []]
    if model not in names:
        raise ProbeFailed(f"/v1/models names {names}, not {model!r}")


async def check_completion(
    session: aiohttp.ClientSession, root: str, model: str, timeout: float = READY_REQUEST_TIMEOUT_S
) -> None:
    """Ask for one real completion of one token.

    Raises:
        ProbeFailed: none came back; has the server's message.
    """
    body = {"model": model, "messages": [{"role": "user", "content": "Say OK."}], "max_tokens": 1, "temperature": 0.0}
    answer = _parse_object(await _fetch_body(session, "POST", f"{root}/v1/chat/completions", body, timeout))
    choices = answer.get("choices")
    if not choices or not isinstance(choices[0].get("message"), dict):
        raise ProbeFailed("the first completion has no choice")


async def _fetch_body(
    session: aiohttp.ClientSession, method: str, url: str, body: dict[str, Any] | None, timeout: float
) -> bytes:
    path = url.split("/", 3)[3]
    try:
        async with session.request(method, url, json=body, timeout=aiohttp.ClientTimeout(total=timeout)) as answer:
            data = await answer.read()
            if answer.status != 200:
                raise ProbeFailed(f"/{path} answered {answer.status}: {data[:300].decode(errors='replace')}")
            return data
    except TimeoutError:
        raise ProbeFailed(f"/{path} did not answer within {timeout:g} s") from None
    except (aiohttp.ClientError, OSError) as failed:
        raise ProbeFailed(f"/{path}: {failed or type(failed).__name__}") from None


def _parse_object(data: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(data)
    except ValueError:
        raise ProbeFailed("the answer is not JSON") from None
    if not isinstance(answer, dict):
        raise ProbeFailed("the answer is not a JSON object")
    return answer
