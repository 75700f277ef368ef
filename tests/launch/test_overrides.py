"""Words of the command line: whatever is typed is either read or refused by name, never a crash."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from gavel.launch.cli.command_line import parse_words
from gavel.launch.compose.overrides import GroupChoice, Removal, Setting, read_override, read_value
from gavel.launch.compose.verbs import GROUPS
from gavel.launch.config.keys import Place, find_place, list_known_keys
from gavel.launch.config.schema import RolloutConfig
from gavel.models.errors import ConfigError

TEXT = Place(str | None, None)
NUMBER = Place(int | None, None)


def refused_field(work: Callable[[], object]) -> str | None:
    """Return the field of the error that ``work`` raises, None if it raises none."""
    try:
        work()
    except ConfigError as failed:
        return failed.field
    return None


@given(st.text())
def test_any_text_reaches_a_key_that_holds_a_text(text: str) -> None:
    value = read_value(Setting("inspect", text), TEXT)
    if text == "null":
        assert value is None
    elif len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        assert value == text[1:-1].replace(f"\\{text[0]}", text[0])
    else:
        assert value == text


@given(st.text())
def test_any_text_for_another_key_is_read_or_refused_by_its_name(text: str) -> None:
    assert refused_field(lambda: read_value(Setting("tasks.limit", text), NUMBER)) in (None, "tasks.limit")


@given(st.integers() | st.booleans() | st.none())
def test_scalars_are_read_as_they_are_written(value: int | bool | None) -> None:
    written = "null" if value is None else str(value).lower()
    assert read_value(Setting("k", written), NUMBER) == value


@given(st.text())
def test_any_word_is_an_override_or_refused(word: str) -> None:
    with suppress(ConfigError):
        assert isinstance(read_override(word, GROUPS), GroupChoice | Setting | Removal)


@given(st.lists(st.text(min_size=1)))
def test_any_command_line_is_read_or_refused(words: list[str]) -> None:
    with suppress(ConfigError):
        parse_words(words)


@given(st.lists(st.text(alphabet="abcdeilmnoprstuy_", min_size=1), min_size=1, max_size=4).map(".".join))
def test_any_key_is_found_or_refused_by_its_own_name(key: str) -> None:
    assert key.startswith(refused_field(lambda: find_place(RolloutConfig, key, {})) or "")


def test_every_known_key_is_found() -> None:
    keys = list_known_keys(RolloutConfig, {"env": {"name": "abstention"}, "services": {"second": {}}})
    assert {
        "env.name",
        "policy.sampling.temperature",
        "services.second.timeout.connect",
        "failure.window",
        "tasks.limit",
    } <= set(keys)
    for key in keys:
        find_place(RolloutConfig, key, {"env": {"name": "abstention"}, "services": {"second": {}}})
