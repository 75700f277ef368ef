"""The ring of replicas, without I/O: placement, the relief valve, who leaves and who comes back, and when."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.models.calls.replicas import FIRST_PAUSE, FLOOR, LONGEST_PAUSE, PROBE_PATIENCE, SPILL, STRIKES, Ring

NAMES = ("http://a/v1", "http://b/v1", "http://c/v1")
PREFIXES = [f"question {number}" for number in range(3000)]


def ring(least: int = 1) -> Ring:
    return Ring(NAMES, least, capacity=90)


def refuse(made: Ring, index: int, now: float = 0.0) -> None:
    assert made.record_strike(index, now, "connection refused", refused=True)


def placement(made: Ring) -> list[int | None]:
    return [made.choose_replica(prefix) for prefix in PREFIXES]


def test_prefixes_spread_evenly_and_each_stays_where_it_is() -> None:
    first, again = placement(ring()), placement(ring())
    assert first == again
    assert all(900 <= count <= 1100 for count in Counter(first).values())  # 1,000 each, 3.9 standard deviations


def test_a_prefix_stays_where_it_is_whatever_the_order_of_the_urls() -> None:
    backwards = Ring(NAMES[::-1])
    for prefix in PREFIXES[:200]:
        there, here = backwards.choose_replica(prefix), ring().choose_replica(prefix)
        assert there is not None
        assert here is not None
        assert NAMES[::-1][there] == NAMES[here]


def test_a_replica_that_leaves_moves_its_own_prefixes_only_and_gets_them_back() -> None:
    made = ring()
    before = placement(made)
    refuse(made, 1)
    after = placement(made)
    assert all(new == old for old, new in zip(before, after, strict=True) if old != 1)
    moved = Counter(new for old, new in zip(before, after, strict=True) if old == 1)
    assert set(moved) == {0, 2}
    assert min(moved.values()) > 400  # half of about 1,000 each
    assert made.list_due(FIRST_PAUSE) == [1]
    assert made.record_probe(1, FIRST_PAUSE, None)
    assert placement(made) == before


def test_the_valve_opens_above_its_share_and_spills_to_the_second_in_rank() -> None:
    made, homes = ring(), []
    for _ in range(90):
        index = made.choose_replica("hot")
        assert index is not None
        made.enter(index)
        homes.append(index)
    loads = sorted(Counter(homes).values(), reverse=True)
    # 90 calls may be in flight: 30 are the even share of one, and SPILL times that are 45; the second takes the other
    # 45.
    assert SPILL == 1.5
    assert homes[:46] == [homes[0]] * 45 + [homes[45]]
    assert loads == [45, 45]
    for index in homes:
        made.leave(index)
    assert made.load == [0, 0, 0]
    assert made.choose_replica("hot") == homes[0]


def test_the_valve_stays_shut_for_a_few_calls_however_small_the_limit() -> None:
    made = Ring(NAMES, capacity=3)
    for _ in range(FLOOR):
        index = made.choose_replica("hot")
        assert index is not None
        made.enter(index)
    assert sorted(made.load) == [0, 0, FLOOR]
    assert made.load[made.choose_replica("hot") or 0] == 0


def test_calls_without_a_prefix_go_to_the_least_loaded_and_in_turn_among_equals() -> None:
    made = ring()
    assert {made.choose_replica("") for _ in range(3)} == {0, 1, 2}
    made.enter(0)
    made.enter(2)
    assert [made.choose_replica("") for _ in range(4)] == [1, 1, 1, 1]


def test_a_refused_connection_puts_a_replica_out_at_once() -> None:
    made = ring()
    refuse(made, 0)
    assert (made.get_state(0), made.alive, made.whole) == ("out", 2, False)
    assert 0 not in placement(made)


def test_failed_tries_in_a_row_make_a_suspect_and_an_answer_between_does_not() -> None:
    made = ring()
    for _ in range(STRIKES - 1):
        assert not made.record_strike(0, 0.0, "reset", refused=False)
    made.record_answer(0)
    for _ in range(STRIKES - 1):
        assert not made.record_strike(0, 0.0, "reset", refused=False)
    assert made.get_state(0) == "in"
    assert made.record_strike(0, 0.0, "reset", refused=False)
    assert (made.get_state(0), made.alive) == ("suspect", 3)
    assert 0 not in placement(made)
    assert made.list_due(0.0) == [0]  # asked at once
    assert made.list_due(0.0) == []  # and once


def test_suspects_are_used_while_there_is_no_other() -> None:
    made = ring(least=1)
    for index in range(3):
        for _ in range(STRIKES):
            made.record_strike(index, 0.0, "reset", refused=False)
    assert (made.alive, made.problem) == (3, None)
    assert made.choose_replica("x") in (0, 1, 2)
    assert made.choose_replica("x", tried=(0, 1)) == 2


def test_a_replica_on_probation_is_suspect_again_at_its_next_failed_try() -> None:
    made = ring()
    refuse(made, 0)
    made.list_due(1.0)
    made.record_probe(0, 1.0, None)
    assert made.record_strike(0, 3.0, "HTTP 500", refused=False)
    assert made.get_state(0) == "suspect"
    # Pauses: 0.5 when it was refused, then 1; the probe that was answered doubled that.
    assert made.list_due(4.9) == []
    assert made.list_due(5.0) == [0]
    assert made.record_probe(0, 5.0, "/health answered 500")
    assert made.get_state(0) == "out"


def test_the_pause_between_probes_doubles_up_to_its_bound_and_an_answered_call_resets_it() -> None:
    made, now, pauses = ring(), 0.0, []
    refuse(made, 0, now)
    for _ in range(8):
        last = now
        while not made.list_due(now):
            now += 0.125
        pauses.append(now - last)
        assert not made.record_probe(0, now, "refused")
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]
    assert made.record_answer(0)  # a call that was still on its way
    refuse(made, 0, now)
    assert made.list_due(now + FIRST_PAUSE) == [0]


def test_a_probe_of_a_loop_that_ended_is_forgotten() -> None:
    made = ring()
    refuse(made, 0)
    assert made.list_due(1.0) == [0]
    assert made.list_due(1.0 + PROBE_PATIENCE) == []
    assert made.list_due(1.0 + 2 * PROBE_PATIENCE) == [0]


def test_one_that_is_gone_never_comes_back() -> None:
    made = ring()
    made.remove_replica(1, "was killed by SIGKILL")
    assert not made.record_answer(1)
    assert made.list_due(1e9) == []
    assert not made.record_probe(1, 0.0, None)
    assert 1 not in placement(made)


@pytest.mark.parametrize(("least", "survives"), [(1, 2), (2, 1), (3, 0)])
def test_with_fewer_alive_than_the_least_no_call_is_made_and_the_reason_is_told(least: int, survives: int) -> None:
    made = ring(least)
    for index in range(survives):
        refuse(made, index)
        assert made.choose_replica("x") is not None
    refuse(made, survives)
    assert made.choose_replica("x") is None
    problem = made.problem
    assert problem is not None
    assert problem.startswith(
        f"{3 - survives - 1} of 3 replicas are alive, min_replicas={least}; http://a/v1: connection refused"
    )


def test_a_further_try_goes_elsewhere_while_there_is_an_elsewhere() -> None:
    made = ring()
    first = made.choose_replica("x")
    assert first is not None
    second = made.choose_replica("x", tried=(first,))
    assert second is not None
    third = made.choose_replica("x", tried=(first, second))
    assert {first, second, third} == {0, 1, 2}
    assert made.choose_replica("x", tried=(0, 1, 2)) == first


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["refuse", "strike", "answer", "probe_good", "probe_bad", "remove", "call"]), st.integers(0, 2)
    ),
    max_size=60,
)


@given(EVENTS, st.integers(1, 3))
def test_whatever_happens_a_call_goes_to_a_live_replica_or_nowhere(events: list[tuple[str, int]], least: int) -> None:
    made, now, gone = ring(least), 0.0, set[int]()
    for event, index in events:
        now += 1.0
        if event in ("refuse", "strike"):
            made.record_strike(index, now, "broken", refused=event == "refuse")
        elif event == "answer":
            made.record_answer(index)
        elif event == "remove":
            made.remove_replica(index, "ended")
            gone.add(index)
        elif event == "call":
            chosen = made.choose_replica("x", tried=(index,))
            assert (chosen is None) == (made.alive < least)
            assert chosen is None or made.get_state(chosen) in ("in", "suspect")
        else:
            for due in made.list_due(now):
                made.record_probe(due, now, None if event == "probe_good" else "broken")
    assert made.alive == sum(made.get_state(index) in ("in", "suspect") for index in range(3))
    assert all(made.get_state(index) == "gone" for index in gone)
    assert made.whole == all(made.get_state(index) == "in" for index in range(3))
