"""The promises of the managed service, kept by the real vLLM (CPU build) with the real embedded model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from tests.support.processes import alive, wait_until
from tests.support.vllm import RealVllm

from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.types import ChatRequest, Completion, Message, ResponseFormat, Sampling, TellingTokens
from gavel.models.vllm.supervisor import find_descendants

pytestmark = [pytest.mark.vllm, pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")]

HOLDER = """
import asyncio, sys
from pathlib import Path
from gavel.models.pool import open_services
from tests.support.vllm import smollm2
async def main():
    async with open_services({"general": smollm2(sys.argv[1])}, log_dir=Path(sys.argv[2]), progress=print):
        await asyncio.sleep(600)
asyncio.run(main())
"""


def ask(vllm: RealVllm, text: str, service: str = "policy", **options: object) -> Completion:
    sampling = Sampling(temperature=0.0, max_response_tokens=64)
    request = ChatRequest((Message("user", text),), "judge" if service == "general" else "policy", sampling, **options)  # type: ignore[arg-type]
    return vllm.run(lambda: vllm.pool.get_model(service).complete(request))


def test_policy_and_judge_are_one_server_that_says_how_it_started(real_vllm: RealVllm) -> None:
    assert real_vllm.pool.list_urls("policy") == real_vllm.pool.list_urls("general")
    assert any("policy+judge: ready after" in line for line in real_vllm.lines)
    assert any("KV cache of 23," in line for line in real_vllm.lines)


def test_a_reply_stops_by_itself(real_vllm: RealVllm) -> None:
    completion = ask(real_vllm, "What is the capital of France?")
    assert "Paris" in completion.reply.text
    assert completion.reply.finish_reason == "stop"
    assert "<|im_end|>" not in completion.reply.text
    assert completion.receipt.served_model == "embedded:smollm2"
    usage = completion.reply.usage
    assert usage is not None
    # <|im_start|>system … <|im_end|> of the model's own template, the question, and the opening of the reply
    assert usage.prompt_tokens == 37


def test_the_special_tokens_are_those_of_the_served_models_files(real_vllm: RealVllm) -> None:
    model = real_vllm.pool.get_model("general")
    assert isinstance(model, TellingTokens)
    found = real_vllm.run(model.read_special_tokens)
    assert {"<|im_start|>", "<|im_end|>", "<|endoftext|>"} <= set(found.tokens)
    assert "tokenizer.json" in found.source


def test_a_judge_answers_with_one_of_the_choices(real_vllm: RealVllm) -> None:
    for choices in (("A", "B", "C", "D"), ("followed", "not followed")):
        completion = ask(real_vllm, "Grade this.", "general", response_format=ResponseFormat(choice=choices))
        assert completion.reply.text in choices


def test_a_judge_answers_by_a_json_schema(real_vllm: RealVllm) -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    completion = ask(real_vllm, "Is water wet?", "general", response_format=ResponseFormat(json_schema=schema))
    assert completion.reply.text.replace(" ", "").replace("\n", "") in ('{"ok":true}', '{"ok":false}')


def test_killing_us_while_it_starts_leaves_no_process_after_five_seconds(vllm_python: str, tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, vllm_python, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "MARK": mark},
    )
    log = tmp_path / "judge.log"
    wait_until(
        lambda: log.exists() and "Initializing a V1 LLM engine" in log.read_text(errors="replace"),
        180,
        "the engine's start",
    )
    tree = find_descendants(holder.pid)
    assert len(tree) >= 3, "supervisor, server and engine"
    holder.kill()
    holder.communicate()
    wait_until(lambda: not any(map(alive, tree)), 5.0, "the end of every process")


def test_a_killed_server_is_noticed_at_once_and_named(real_vllm: RealVllm) -> None:
    tree = find_descendants(real_vllm.pool.servers[0].pid or 0)
    assert len(tree) >= 3, "server, engine and worker"
    server = tree[0]
    began = time.monotonic()
    os.kill(server, signal.SIGKILL)
    died = real_vllm.run(real_vllm.pool.wait_failure, 10.0)
    assert time.monotonic() - began < 2.0
    assert "was killed by SIGKILL (exit code 137)" in died.reason
    assert "Application startup complete" in died.report
    with pytest.raises(ModelFailure) as caught:
        ask(real_vllm, "Are you there?")
    assert caught.value.kind is FailureKind.TRANSPORT_UNREACHABLE
    wait_until(lambda: not any(map(alive, tree)), 5.0, "the end of the engine")
