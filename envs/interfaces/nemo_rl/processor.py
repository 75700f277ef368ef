"""Turns a dataset's row into NeMo-RL's ``DatumSpec``: the rendered prompt with its token ids, and the sample's info."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gavel.envs.interfaces.nemo_rl.endings import TAIL
from gavel.envs.interfaces.nemo_rl.framing import Frame, read_frame
from gavel.envs.interfaces.nemo_rl.stamps import make_gym_row, make_info
from gavel.models.texts.thinking import is_thinking_open


class TaskProcessor:
    """See ``__call__``; ``split``, ``multi_turn``, ``weight`` and ``agent`` as for ``dataset.GavelTasks``."""

    def __init__(self, split: str, multi_turn: bool, weight: float = 1.0, agent: str | None = None) -> None:
        self._split, self._multi_turn, self._weight, self._agent = split, multi_turn, weight, agent
        self._frame: tuple[Any, Frame] | None = None

    def __call__(
        self,
        datum_dict: Mapping[str, Any],
        task_data_spec: Any,  # noqa: ARG002
        tokenizer: Any,
        max_seq_length: int | None,
        idx: int,
    ) -> dict[str, Any]:
        """Return one prompt.

        A prompt that leaves no room for a reply is cut to a token, weighs nothing and is marked, so that it is ungraded
        and never a 0.

        Args:
            datum_dict: ``task_name``, and ``task`` as JSON.
            task_data_spec: not used; prompts are complete.
            tokenizer: renders the messages with its chat template and encodes them.
            max_seq_length: tokens of prompt and reply together; None sets no limit.
            idx: the row's number.

        Raises:
            ConfigError: episodes have several turns, and the template cannot frame them.
        """
        messages = [
            {"role": said["role"], "content": said["content"]} for said in json.loads(datum_dict["task"])["messages"]
        ]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"][0]
        prefilled = self._agent is not None and is_thinking_open(
            str(tokenizer.decode(ids[-TAIL:].tolist(), skip_special_tokens=False))
        )
        too_long = None
        if max_seq_length is not None and len(ids) >= max_seq_length:
            too_long = f"the prompt has {len(ids)} tokens, and {max_seq_length} is the limit of prompt and reply"
            ids = ids[:1]
        info = make_info(datum_dict["task"], self._split, self._get_frame(tokenizer), too_long)
        if self._agent is not None:
            info = make_gym_row(info, messages, self._agent, prefilled=prefilled)
        return {
            "message_log": [{"role": "user", "content": text, "token_ids": ids}],
            "length": len(ids),
            "extra_env_info": info,
            "loss_multiplier": 0.0 if too_long else self._weight,
            "idx": idx,
            "task_name": datum_dict["task_name"],
        }

    def _get_frame(self, tokenizer: Any) -> Frame | None:
        if not self._multi_turn:
            return None
        if self._frame is None or self._frame[0] is not tokenizer:
            self._frame = (tokenizer, read_frame(tokenizer))
        return self._frame[1]
