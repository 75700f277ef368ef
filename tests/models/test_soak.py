"""Some thousand calls through one client against a failing server leave nothing behind; ``benchmarks/soak.py`` makes
100,000.
"""

from __future__ import annotations

import sys

import pytest
from benchmarks.soak import FAULTS, soak
from tests.support.fault_server import server_process


@pytest.mark.skipif(sys.platform != "linux", reason="looks at memory and sockets through /proc")
async def test_memory_tasks_sockets_and_receipts_add_up_after_thousands_of_calls_and_hundreds_of_faults() -> None:
    with server_process("--faults", ",".join(FAULTS), "--share", "0.1") as url:
        soaked = await soak(url, calls=3000, in_flight=64, warm_up=1000)
    assert soaked.problems == ()
    assert soaked.ledger.receipts == 4000
    assert soaked.ledger.shared > 100
    assert soaked.ledger.tries.total() - soaked.ledger.tries["ok"] > 200
    assert {"provider_unavailable", "transport_peer_drop", "judge_unparseable"} <= set(soaked.ledger.tries)
