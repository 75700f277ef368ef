"""The command line and the environment of a server, for both builds, from one service."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gavel.models.errors import ConfigError
from gavel.models.service import Service
from gavel.models.vllm.arguments import build_command, build_environment, check_engine_args, launch_key

REVISION = "9216db5781bf21249d130ec9da846c4624c16137"
GPU = Service(
    mode="managed", model="Qwen/Qwen3-32B", revision=REVISION, gpus=2, max_context_length=8192, quantization="fp8",
    python="/opt/python",
)  # fmt: skip
CPU = Service(
    mode="managed",
    model="embedded:smollm2",
    cpu=True,
    kv_cache_gb=1.0,
    dtype="bfloat16",
    max_context_length=2048,
    python="/opt/python",
)


def flags(service: Service, model: str = "/m") -> dict[str, str]:
    """Read a command back as flag -> value; a switch has the value ''."""
    words = build_command(service, model, 9123)[3:]
    found: dict[str, str] = {}
    for word in words:
        if word.startswith("--"):
            found[name := word] = ""
        else:
            found[name] = f"{found[name]} {word}".strip()
    return found


def test_the_server_is_a_module_of_the_services_python() -> None:
    assert build_command(GPU, "/m", 9123)[:3] == ("/opt/python", "-m", "vllm.entrypoints.openai.api_server")


def test_a_gpu_service_gives_these_flags() -> None:
    assert flags(GPU, "Qwen/Qwen3-32B") == {
        "--model": "Qwen/Qwen3-32B",
        "--served-model-name": "Qwen/Qwen3-32B",
        "--host": "127.0.0.1",
        "--port": "9123",
        "--revision": REVISION,
        "--tokenizer-revision": REVISION,
        "--quantization": "fp8",
        "--max-model-len": "8192",
        "--seed": "0",
        "--disable-uvicorn-access-log": "",
        "--tensor-parallel-size": "2",
    }


def test_a_cpu_service_gives_these_flags() -> None:
    assert flags(CPU, "/cache/smollm2") == {
        "--model": "/cache/smollm2",
        "--served-model-name": "embedded:smollm2",
        "--host": "127.0.0.1",
        "--port": "9123",
        "--dtype": "bfloat16",
        "--max-model-len": "2048",
        "--seed": "0",
        "--disable-uvicorn-access-log": "",
        "--enforce-eager": "",
    }


def test_the_kv_cache_of_a_gpu_is_a_flag_in_bytes() -> None:
    assert flags(replace(GPU, kv_cache_gb=1.5))["--kv-cache-memory-bytes"] == "1610612736"


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ({"max_num_seqs": 16}, ("--max-num-seqs", "16")),
        ({"enable_prefix_caching": True}, ("--enable-prefix-caching",)),
        ({"enable_prefix_caching": False}, ("--no-enable-prefix-caching",)),
        ({"hf_overrides": {"b": 1, "a": 2}}, ("--hf-overrides", '{"a": 2, "b": 1}')),
        ({"allowed_origins": ["x", "y"]}, ("--allowed-origins", "x", "y")),
        ({"max-num-seqs": 4}, ("--max-num-seqs", "4")),
    ],
)
def test_engine_arguments_become_flags(argument: dict[str, object], words: tuple[str, ...]) -> None:
    command = build_command(replace(CPU, engine_args=argument), "/m", 9123)
    assert command[-len(words) :] == words


def test_an_engine_argument_of_null_is_left_out_and_one_of_ours_can_be_replaced() -> None:
    found = flags(replace(CPU, engine_args={"seed": 7, "enforce_eager": None, "host": "0.0.0.0"}))
    assert found["--seed"] == "7"
    assert "--enforce-eager" not in found
    assert found["--host"] == "0.0.0.0"


@pytest.mark.parametrize("key", ["port", "max_model_len", "max-model-len", "tensor_parallel_size", "served_model_name"])
def test_an_engine_argument_that_has_a_key_of_its_own_is_refused(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_engine_args("judge", replace(CPU, engine_args={key: 1}))
    assert f"judge.engine_args.{key}" in str(caught.value)
    assert "set judge." in str(caught.value)


def test_an_engine_argument_that_is_no_flag_is_refused() -> None:
    with pytest.raises(ConfigError, match="not the name of an engine argument"):
        check_engine_args("judge", replace(CPU, engine_args={"--max-num-seqs 3": 1}))


def test_the_environment_of_a_gpu_server_shows_it_only_its_gpus() -> None:
    made = build_environment(
        GPU, local=False, gpus=("2", "3"), inherited={"CUDA_VISIBLE_DEVICES": "0,1,2,3", "PATH": "/bin"}
    )
    assert made["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert made["PATH"] == "/bin"
    assert "HF_HUB_OFFLINE" not in made
    assert made["VLLM_NO_USAGE_STATS"] == made["DO_NOT_TRACK"] == "1"


def test_a_server_says_how_it_started_whatever_our_own_environment_silences() -> None:
    assert (
        build_environment(GPU, local=False, gpus=("0",), inherited={"VLLM_LOGGING_LEVEL": "ERROR"})[
            "VLLM_LOGGING_LEVEL"
        ]
        == "INFO"
    )


def test_a_local_model_is_never_looked_for_on_the_hub() -> None:
    made = build_environment(GPU, local=True, gpus=("0",), inherited={})
    assert made["HF_HUB_OFFLINE"] == made["TRANSFORMERS_OFFLINE"] == "1"


@pytest.mark.parametrize(("size", "text"), [(1.0, "1"), (0.25, "1"), (1.5, "2"), (4.0, "4")])
def test_the_kv_cache_of_the_cpu_build_is_whole_gibibytes(size: float, text: str) -> None:
    made = build_environment(replace(CPU, kv_cache_gb=size), local=True, inherited={})
    assert made["VLLM_CPU_KVCACHE_SPACE"] == text
    assert made["CUDA_VISIBLE_DEVICES"] == ""


def test_cpu_servers_that_share_a_machine_do_not_bind_to_the_same_cores() -> None:
    alone = build_environment(CPU, local=True, inherited={})
    assert "VLLM_CPU_OMP_THREADS_BIND" not in alone
    shared = build_environment(CPU, local=True, threads=4, inherited={})
    assert (shared["VLLM_CPU_OMP_THREADS_BIND"], shared["OMP_NUM_THREADS"]) == ("nobind", "4")
    chosen = build_environment(CPU, local=True, threads=4, inherited={"VLLM_CPU_OMP_THREADS_BIND": "0-3"})
    assert chosen["VLLM_CPU_OMP_THREADS_BIND"] == "0-3"


def test_services_that_differ_only_in_how_they_are_called_share_a_launch() -> None:
    called = replace(CPU, max_in_flight=3, deadline=5.0, chat_template_kwargs={"enable_thinking": False}, rpm=9)
    assert launch_key(called) == launch_key(CPU)


@pytest.mark.parametrize(
    "change", [{"dtype": "float32"}, {"max_context_length": 4096}, {"engine_args": {"seed": 1}}, {"python": "/other"}]
)
def test_services_that_differ_in_what_is_started_do_not(change: dict[str, object]) -> None:
    assert launch_key(replace(CPU, **change)) != launch_key(CPU)  # type: ignore[arg-type]
