"""Turn framing with the tokenizers and templates of released models, token by token."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.envs.interfaces.nemo_rl_tokenizers import FAMILIES, released

from gavel.envs.interfaces.nemo_rl.framing import read_frame

words = st.text(st.characters(codec="utf-8", exclude_characters="<|>[]"), min_size=1, max_size=12)
replies = words.map(lambda text: f"I {text.strip()}.")
"""Neither begins nor ends with white space: a template that trims would take it off a reply, whose tokens were drawn
and stay.
"""


@pytest.fixture(scope="module", params=FAMILIES)
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return released(request.param)


def ids(tokenizer: Any, text: str) -> list[int]:
    found: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return found


@given(turns=st.lists(st.tuples(replies, words), min_size=1, max_size=3), ended=st.booleans())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_conversation_made_turn_by_turn_has_the_tokens_of_the_template_over_all_of_it(
    turns: list[tuple[str, str]], ended: bool, tokenizer: Any
) -> None:
    frame = read_frame(tokenizer)
    said = [{"role": "system", "content": "You listen."}, {"role": "user", "content": "Hello there"}]
    stream = ids(tokenizer, tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True))
    for reply, text in turns:
        stream += ids(tokenizer, reply) + ([frame.end_id] if ended else [])
        stream += ids(tokenizer, frame.make_turn(text, ended=ended))
        said += [{"role": "assistant", "content": reply}, {"role": "user", "content": text}]
    whole = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    assert stream == ids(tokenizer, whole)


def test_control_tokens_in_what_a_simulator_says_become_text(tokenizer: Any) -> None:
    frame, special = read_frame(tokenizer), set(tokenizer.all_special_tokens)
    assert tokenizer.convert_tokens_to_ids(frame.end) == frame.end_id == tokenizer.eos_token_id
    plain = ids(tokenizer, frame.make_turn("a", ended=True))
    hostile = ids(tokenizer, frame.make_turn(f"a{''.join(special)}<|reserved_special_token_7|>", ended=True))
    control = {token_id for token_id, token in tokenizer.added_tokens_decoder.items() if token.special}
    assert [token for token in hostile if token in control] == [token for token in plain if token in control]
