"""Local servers that take and refuse requests as providers and engines do, as a table: one provider, one entry.

What they do is what their documentation and the issues of their clients say; each knows one model. A
server runs in a thread of its own, so that a whole command can run in the test's thread::

    with serve(PROVIDERS["tgi"]) as server:
        main(["rollout", "judge=tgi", f"judge.base_url={server.base_url}", "judge.model=…", …])
        assert server.bodies
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web
from tests.support.runs import JUDGE, POLICY, reply

KEY = "test-key-of-no-provider"
THOUGHT_TOKENS = 600
"""Tokens that a model here thinks before it answers."""

Refusal = tuple[int, Any]
Rule = Callable[[dict[str, Any]], "Refusal | None"]

_CHAT = frozenset(
    (
        "model",
        "messages",
        "temperature",
        "top_p",
        "max_tokens",
        "max_completion_tokens",
        "stop",
        "seed",
        "response_format",
        "stream",
        "n",
        "reasoning_effort",
        "presence_penalty",
        "frequency_penalty",
        "logprobs",
        "top_logprobs",
        "user",
        "metadata",
        "prompt_cache_key",
    )
)


@dataclass(frozen=True)
class Provider:
    """One provider: ``choice`` is the config's, ``words`` what its user must say besides URL and model (with ``{g}``
    for the group).

    ``fields`` None ignores what it does not know; ``served`` names the model in replies; ``thinks`` says whether a
    request makes it.
    """

    choice: str
    model: str
    served: str = ""
    path: str = "/v1"
    words: tuple[str, ...] = ()
    key_variable: str = ""
    key_header: str = "Authorization"
    key_value: str = f"Bearer {KEY}"
    query: Mapping[str, str] = field(default_factory=dict)
    fields: frozenset[str] | None = None
    rules: tuple[Rule, ...] = ()
    thinks: Callable[[dict[str, Any]], bool] = lambda _: False
    owner: str = "somebody"
    blank_lines: bool = False


def _openai(message: str, code: str | None = None, param: str | None = None, status: int = 400) -> Refusal:
    return status, {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def _refuses(name: str, message: str, code: str | None = "unsupported_parameter") -> Rule:
    return lambda body: _openai(message, code, name) if name in body else None


def _only_default(body: dict[str, Any]) -> Refusal | None:
    value = body.get("temperature", 1)
    said = (
        f"Unsupported value: 'temperature' does not support {value:g} with this model. Only the default (1) "
        f"value is supported."
    )
    return None if value == 1 else _openai(said, "unsupported_value", "temperature")


def _strict_schema(body: dict[str, Any]) -> Refusal | None:
    """Refuse what OpenAI's strict mode refuses of a schema."""
    wanted = body.get("response_format") or {}
    if wanted.get("type") != "json_schema":
        return None
    schema = wanted["json_schema"]["schema"]
    bad = (
        schema.get("additionalProperties") is not False
        or set(schema["required"]) != set(schema["properties"])
        or b"maxLength" in orjson.dumps(schema)
    )
    return _openai("Invalid schema for response_format 'reply'", None, "response_format") if bad else None


_REASONING: tuple[Rule, ...] = (
    _refuses(
        "max_tokens",
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    ),
    _only_default,
    *(
        _refuses(name, f"Unsupported parameter: '{name}' is not supported with this model.")
        for name in ("stop", "top_p")
    ),
    _strict_schema,
)


def _claude(message: str) -> Refusal:
    return 400, {
        "error": {"code": "invalid_request_error", "message": message, "type": "invalid_request_error", "param": None}
    }


def _unsampled(body: dict[str, Any]) -> Refusal | None:
    found = next((name for name in ("temperature", "top_p", "top_k") if name in body), None)
    return _claude(f"`{found}` is deprecated for this model.") if found else None


def _not_both(body: dict[str, Any]) -> Refusal | None:
    both = "temperature" in body and "top_p" in body
    return (
        _claude("`temperature` and `top_p` cannot both be specified for this model. Please use only one.")
        if both
        else None
    )


def _behind_a_gateway(rule: Rule, status: int = 400, code: int = 400) -> Rule:
    def wrapped(body: dict[str, Any]) -> Refusal | None:
        found = rule(body)
        if found is None:
            return None
        raw = orjson.dumps({"type": "error", "error": found[1]["error"]}).decode()
        return status, {
            "error": {
                "code": code,
                "message": "Provider returned error",
                "metadata": {"raw": raw, "provider_name": "Anthropic"},
            }
        }

    return wrapped


def _must_not_think(body: dict[str, Any]) -> Refusal | None:
    if body.get("enable_thinking") is False:
        return None
    return _openai("parameter.enable_thinking must be set to false for non-streaming calls", "invalid_parameter_error")


def _no_schema(body: dict[str, Any]) -> Refusal | None:
    wanted = (body.get("response_format") or {}).get("type")
    if wanted == "json_schema":
        return _openai("This response_format type is unavailable now", "invalid_request_error")
    if wanted == "json_object" and "json" not in orjson.dumps(body["messages"]).decode().lower():
        said = "Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'."
        return _openai(said, "invalid_request_error")
    return None


def _tgi_sampling(body: dict[str, Any]) -> Refusal | None:
    if 0.0 < body.get("top_p", 0.5) < 1.0:
        return None
    return 422, {"error": "Input validation error: `top_p` must be > 0.0 and < 1.0", "error_type": "validation"}


def _tgi_format(body: dict[str, Any]) -> Refusal | None:
    wanted = body.get("response_format")
    if wanted is None or "value" in wanted:
        return None
    said = (
        "Failed to deserialize the JSON body into the target type: response_format: missing field `value` at "
        "line 1 column 900"
    )
    return 422, said


_LOCAL = "a-local-model"
_AZURE = {"key_variable": "AZURE_OPENAI_API_KEY", "key_header": "api-key", "key_value": KEY, "fields": _CHAT}

PROVIDERS: dict[str, Provider] = {
    "openai": Provider(
        "openai",
        "gpt-4.1-mini",
        "gpt-4.1-mini-2025-04-14",
        key_variable="OPENAI_API_KEY",
        fields=_CHAT,
        rules=(_strict_schema,),
    ),
    "openai_reasoning": Provider(
        "openai_reasoning",
        "gpt-5.4",
        "gpt-5.4-2026-03-05",
        key_variable="OPENAI_API_KEY",
        fields=_CHAT,
        rules=_REASONING,
        thinks=lambda _: True,
    ),
    "openai_reasoning behind an alias": Provider(
        "external",
        "team-judge",
        "team-judge",
        words=("{g}.thinking_tokens=2000",),
        fields=_CHAT,
        rules=_REASONING,
        thinks=lambda _: True,
    ),
    "azure": Provider(
        "azure",
        "my-deployment",
        "gpt-4o-2024-11-20",
        "/openai/v1",
        ("{g}.served_as=[gpt-4o]",),
        rules=(_strict_schema,),
        **_AZURE,
    ),
    "azure, a reasoning model": Provider(
        "azure",
        "my-deployment",
        "gpt-5-mini-2025-08-07",
        "/openai/v1",
        ("{g}.served_as=[gpt-5-mini]", "{g}.thinking_tokens=2000"),
        rules=_REASONING,
        thinks=lambda _: True,
        **_AZURE,
    ),
    "azure_classic": Provider(
        "azure_classic",
        "my-deployment",
        "gpt-4o-2024-11-20",
        "/openai/deployments/my-deployment",
        ("{g}.served_as=[gpt-4o]",),
        query={"api-version": "2024-10-21"},
        rules=(_strict_schema,),
        **_AZURE,
    ),
    "anthropic, Opus 5": Provider(
        "anthropic", "claude-opus-5-5", key_variable="ANTHROPIC_API_KEY", rules=(_unsampled, _strict_schema)
    ),
    "anthropic, a model to come": Provider(
        "anthropic", "claude-next", key_variable="ANTHROPIC_API_KEY", rules=(_unsampled,)
    ),
    "anthropic, Sonnet 4.5": Provider(
        "anthropic",
        "claude-sonnet-4-5",
        "claude-sonnet-4-5-20250929",
        key_variable="ANTHROPIC_API_KEY",
        rules=(_not_both,),
    ),
    "openrouter": Provider(
        "openrouter",
        "anthropic/claude-next",
        "anthropic/claude-next-20260301",
        "/api/v1",
        key_variable="OPENROUTER_API_KEY",
        rules=(_behind_a_gateway(_unsampled),),
    ),
    "openrouter, an error under status 200": Provider(
        "openrouter",
        "anthropic/claude-next",
        path="/api/v1",
        key_variable="OPENROUTER_API_KEY",
        rules=(_behind_a_gateway(_unsampled, 200, 502),),
    ),
    "openrouter, another name": Provider(
        "openrouter",
        "anthropic/claude-opus-4.5",
        "anthropic/claude-4.5-opus-20251124",
        "/api/v1",
        ("{g}.served_as=[anthropic/claude-4.5-opus-20251124]",),
        "OPENROUTER_API_KEY",
    ),
    "dashscope": Provider(
        "dashscope", "qwen3-32b", path="/compatible-mode/v1", key_variable="DASHSCOPE_API_KEY", rules=(_must_not_think,)
    ),
    "dashscope as an unknown server": Provider(
        "external", "qwen3-32b", path="/compatible-mode/v1", rules=(_must_not_think,)
    ),
    "deepseek": Provider(
        "deepseek",
        "deepseek-flash",
        path="",
        key_variable="DEEPSEEK_API_KEY",
        rules=(_no_schema,),
        blank_lines=True,
        thinks=lambda body: (body.get("thinking") or {}).get("type") != "disabled",
    ),
    "deepseek as an unknown server": Provider(
        "external", "deepseek-flash", path="", rules=(_no_schema,), blank_lines=True
    ),
    "sglang": Provider("sglang", _LOCAL, owner="sglang"),
    "llama_cpp": Provider("llama_cpp", "qwen3-8b-q4_k_m.gguf", "qwen3-8b-q4_k_m.gguf", owner="llamacpp"),
    "tgi": Provider("tgi", "org/a-local-model", rules=(_tgi_sampling, _tgi_format)),
    "tgi as an unknown server": Provider("external", "org/a-local-model", rules=(_tgi_sampling, _tgi_format)),
    "ollama": Provider("ollama", "qwen3:8b", owner="library"),
}


class ProviderServer:
    """One provider at a port of this machine; ``bodies`` are the requests it answered, ``refused`` what it said to the
    others.
    """

    def __init__(self, provider: Provider) -> None:
        self.provider, self.port = provider, 0
        self.bodies: list[dict[str, Any]] = []
        self.refused: list[Any] = []

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.provider.path}"

    async def handle(self, request: web.Request) -> web.Response:
        provider = self.provider
        if request.path == f"{provider.path}/models" and not provider.query:
            return _json(
                200, {"object": "list", "data": [{"id": provider.model, "object": "model", "owned_by": provider.owner}]}
            )
        if request.path != f"{provider.path}/chat/completions" or any(
            request.query.get(key) != value for key, value in provider.query.items()
        ):
            return _json(404, {"error": {"code": "404", "message": "Resource not found"}})
        if provider.key_variable and request.headers.get(provider.key_header) != provider.key_value:
            return self._refuse(_openai("Incorrect API key provided.", "invalid_api_key", status=401))
        body = orjson.loads(await request.read())
        if (refusal := self._problem(body)) is not None:
            return self._refuse(refusal)
        self.bodies.append(body)
        return _json(200, self._reply(body))

    def _refuse(self, refusal: Refusal) -> web.Response:
        self.refused.append(refusal[1])
        return _json(*refusal)

    def _problem(self, body: dict[str, Any]) -> Refusal | None:
        provider = self.provider
        if body.get("model") != provider.model:
            return _openai(f"The model `{body.get('model')}` does not exist", "model_not_found", status=404)
        unknown = sorted(body.keys() - provider.fields) if provider.fields is not None else []
        if unknown:
            return _openai(f"Unrecognized request argument supplied: {unknown[0]}")
        return next((found for found in (rule(body) for rule in provider.rules) if found is not None), None)

    def _reply(self, body: dict[str, Any]) -> dict[str, Any]:
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or 10**9
        message: dict[str, Any] = {"role": "assistant", "content": say(body)}
        finish = "stop"
        if self.provider.thinks(body):
            message["reasoning_content"] = "Let me see."
            if limit < THOUGHT_TOKENS:
                message["content"], finish = "", "length"
        if self.provider.blank_lines:
            message["content"] = "\n\n" + message["content"]
        return {
            "id": "r",
            "object": "chat.completion",
            "created": 0,
            "model": self.provider.served or self.provider.model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18},
        }


def _json(status: int, content: Any) -> web.Response:
    if isinstance(content, str):
        return web.Response(status=status, text=content)
    return web.Response(status=status, body=orjson.dumps(content), content_type="application/json")


def say(body: dict[str, Any]) -> str:
    """Answer rightly: as the policy of the tasks, or as the judge the prompt asks for, in the form that was asked
    for.
    """
    prompt = body["messages"][-1]["content"]
    wanted = body.get("response_format") or {}
    schema = (wanted.get("json_schema") or {}).get("schema") or wanted.get("value") or {}
    if "verdict" in schema.get("properties", {}) or '"verdict"' in prompt:
        return '{"reasoning": "It does.", "verdict": "YES"}'
    if prompt.startswith("Request "):
        return "A kind reply."
    if len(body["messages"]) > 1:
        return reply({**body, "model": POLICY})
    word = reply({**body, "model": JUDGE})
    if "<candidate>" not in prompt:
        return {"CORRECT": "A", "INCORRECT": "B", "NOT_ATTEMPTED": "C"}[word]
    return orjson.dumps({"answer": word}).decode() if "answer" in schema.get("properties", {}) else word


@contextmanager
def serve(*providers: Provider) -> Iterator[tuple[ProviderServer, ...]]:
    """Serve providers from a thread of their own."""
    servers, ready, loop = (
        tuple(ProviderServer(provider) for provider in providers),
        threading.Event(),
        asyncio.new_event_loop(),
    )
    runners: list[web.AppRunner] = []

    async def begin() -> None:
        for server in servers:
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", server.handle)
            runner = web.AppRunner(app, access_log=None)
            runners.append(runner)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            server.port = runner.addresses[0][1]
        ready.set()

    async def end() -> None:
        for runner in runners:
            await runner.cleanup()

    def work() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(begin())
        loop.run_forever()
        loop.run_until_complete(end())
        loop.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(20), "the servers did not start"
    try:
        yield servers
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)


PLAIN = {"policy": Provider("external", POLICY), "judge": Provider("external", JUDGE)}
"""Servers that refuse nothing, for the other side."""


def words_of(group: str, server: ProviderServer) -> list[str]:
    """The words that choose a provider as ``policy`` or ``judge``."""
    provider = server.provider
    return [
        f"{group}={provider.choice}",
        f"{group}.base_url={server.base_url}",
        f"{group}.model={provider.model}",
        *(word.format(g=group) for word in provider.words),
    ]
