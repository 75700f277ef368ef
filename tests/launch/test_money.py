"""What calls cost in money: worked out by hand, at the end of a run, in its files, and before it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.launch.test_accounting import RECEIPTS, receipt
from tests.support.fault_server import FaultServer
from tests.support.faults import Answer
from tests.support.runs import arguments, gavel, reply, write_tasks

from gavel.launch.compose.compose import compose_config
from gavel.launch.runs.accounting import Accounts, describe_money, list_prices, show_money
from gavel.models.errors import ConfigError
from gavel.models.service import Price, Service
from gavel.models.types import Usage

GENERAL, POLICY = Price(2.5, 10.0, 1.25, "USD"), Price(1.0, 4.0, currency="USD")


def accounts(**prices: Price) -> Accounts:
    made = Accounts(prices)
    made.add_receipts(RECEIPTS)
    return made


def test_money_is_that_of_the_calls_over_the_network_with_cached_tokens_at_their_own_price() -> None:
    made = accounts(general=GENERAL, policy=POLICY)
    general, policy = made.close_accounts().values()
    assert general.money == round(
        (60 * 2.5 + 240 * 1.25 + 30 * 10) / 1e6, 6
    )  # of 300 in, 240 of them cached, and 30 out
    assert policy.money == round((50 * 1 + 500 * 4) / 1e6, 6)
    whole = made.compute_total()
    assert (whole.money, whole.currency) == (0.0028, "USD")
    assert describe_money(made.close_accounts(), whole) == "judge 0.00075 USD, policy 0.0021 USD; 0.0028 USD in all"


def test_cached_tokens_without_a_price_of_their_own_cost_what_the_others_do() -> None:
    assert Price(2.0, 8.0).compute_cost(1_000_000, 500_000, 400_000) == 6.0
    assert Price(2.0, 8.0, 0.0).compute_cost(1_000_000, 500_000, 400_000) == 5.2


@pytest.mark.parametrize(
    ("prices", "said"),
    [
        ({}, ""),
        ({"policy": POLICY}, "policy 0.0021 USD; no price is set for judge"),
        ({"policy": POLICY, "general": Price(1, 1, currency="EUR")}, "judge 0.00033 EUR, policy 0.0021 USD"),
        ({"policy": Price(0, 0), "general": Price(1000, 0)}, "judge 0.30, policy 0.00; 0.30 in all"),
    ],
    ids=["none", "one_of_two", "two_currencies", "no_currency"],
)
def test_there_is_a_sum_only_where_every_called_service_has_a_price_in_one_currency(
    prices: dict[str, Price], said: str
) -> None:
    made = accounts(**prices)
    assert describe_money(made.close_accounts(), made.compute_total()) == said
    assert (made.compute_total().money is None) == (" in all" not in said)


def test_replies_without_a_count_of_tokens_are_told() -> None:
    made = Accounts({"general": GENERAL})
    made.add_receipts(
        [receipt("general", reply_digest="sha256:1"), receipt("general", usage=Usage(10, 1), reply_digest="sha256:2")]
    )
    assert "1 replies came without a count of tokens" in describe_money(made.close_accounts(), made.compute_total())


def test_amounts_have_two_places_and_small_ones_two_digits() -> None:
    assert [show_money(amount, None) for amount in (0.0, 0.00004321, 0.01, 1234.567)] == [
        "0.00",
        "4.3e-05",
        "0.01",
        "1234.57",
    ]


def counted(body: dict[str, Any]) -> Answer:
    return Answer(reply(body), usage={"prompt_tokens": 1000, "completion_tokens": 100})


async def test_a_run_ends_with_its_money_and_another_price_is_the_same_run(tmp_path: Path) -> None:
    tasks, run = write_tasks(tmp_path / "t.jsonl", 4), tmp_path / "run"
    async with FaultServer(reply=counted) as server:
        words = arguments(tasks, run, server.base_url, "policy.price={input: 1000, output: 10000, currency: EUR}")
        first = await gavel(*words)
        assert first.code == 0, first.out + first.err
        assert "money: policy 8.00 EUR; no price is set for judge" in first.out  # 4 calls of 1000 in and 100 out
        again = await gavel(*words, "policy.price.input=2000", "judge.price={input: 1000, output: 0, currency: EUR}")
        assert again.code == 0, again.out + again.err
    assert "money: judge 3.00 EUR, policy 12.00 EUR; 15.00 EUR in all" in again.out
    found = orjson.loads((run / "metrics.json").read_bytes())
    assert (found["services"]["policy"]["money"], found["cost"]["money"], found["cost"]["currency"]) == (
        12.0,
        15.0,
        "EUR",
    )
    assert (await gavel("report", str(run), "format=md")).code == 0
    assert "15.00 EUR in all" in (run / "report.md").read_text()
    rescored = await gavel("rescore", str(run), "reward=tiered", f"into={tmp_path / 'child'}")
    assert "15.00 EUR in all" in rescored.out, rescored.out + rescored.err


async def test_a_dry_run_says_tokens_money_and_what_it_assumes(tmp_path: Path) -> None:
    words = arguments(write_tasks(tmp_path / "t.jsonl", 4), tmp_path / "run", "http://127.0.0.1:9/v1", "dry_run=true")
    bounded = [
        *words,
        "policy.sampling.max_response_tokens=1000",
        "policy.price={input: 0, output: 1000, currency: EUR}",
    ]
    done = await gavel(*bounded, env={**os.environ, "COLUMNS": "250"})
    assert done.code == 0, done.err
    assert "policy: 4 calls, about 1" in done.out
    assert "at most 4000 out" in done.out
    assert "policy: at most 4.00 EUR" in done.out
    assert "judge: no price is set (judge.price=" in done.out
    assert "assumed: 4 bytes a token" in done.out
    unbounded = await gavel(*words, "policy.price={input: 1, output: 1}", "policy.sampling.max_response_tokens=null")
    assert "an output limit is missing" in unbounded.out


@pytest.mark.parametrize("key", ["judge.price.input", "judge.price.output", "judge.price.cached"])
@pytest.mark.parametrize("value", ["-1", ".nan", ".inf"])
def test_what_is_no_price_is_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=r"no price of a million tokens|price"):
        compose_config(
            "rollout", ["policy=smollm2", "judge=smollm2", "judge.price={input: 1, output: 1}", f"{key}={value}"]
        )


@pytest.mark.parametrize("verb", ["probe", "serve"])
@pytest.mark.parametrize(
    "key",
    ["judge.price={input: 1, output: 1}", "judge@services.second=smollm2 services.second.price={input: 1, output: 1}"],
)
def test_a_price_where_nothing_adds_money_up_is_refused(verb: str, key: str) -> None:
    head, _, rest = key.partition(" services.")
    words = [head, f"services.{rest}", "judging.bindings.abstention.judge=second"] if rest else [head]
    policy = ["policy=smollm2"] if verb == "serve" else []
    with pytest.raises(ConfigError, match=f"`gavel {verb}` adds no money up"):
        compose_config(verb, [*policy, "judge=smollm2", "env=abstention", *words])


def test_prices_are_those_of_the_services_that_have_one() -> None:
    services = {"a": Service("external"), "b": Service("external", price=GENERAL)}
    assert list_prices(services) == {"b": GENERAL}
    assert services["a"].identity == services["b"].identity
