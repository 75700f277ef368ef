"""A few real GRPO steps with TRL's trainer on the CPU. The only module here that needs TRL and torch, imported when it
runs.

TRL is Apache-2.0; its trainer is used as it is, with one asynchronous reward function and one callback.
"""

from __future__ import annotations

import asyncio
import os
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from gavel.envs.interfaces.nemo_rl.endings import Limits
from gavel.envs.interfaces.nemo_rl.tasks import encode_task
from gavel.envs.interfaces.trl.config import GrpoOptions
from gavel.envs.interfaces.trl.scoring import Scorer, TrlCompletion
from gavel.envs.types import Task
from gavel.models.errors import InputError
from gavel.models.texts.thinking import is_thinking_open, is_thinking_tag

Told = Callable[[int, Mapping[str, float]], None]
"""Told after each step: its number, and its figures."""


@dataclass(frozen=True, slots=True)
class TrlSession:
    """What a training is given besides its options.

    ``scorer`` makes the scorer once the tokenizer is known; it is called from the training's thread, and its coroutines
    run on ``loop``. ``stop`` set lets the step under way end, keeps a checkpoint in ``checkpoints`` and ends the
    training. ``model`` is the folder for the trained weights, where they are to be kept.
    """

    tasks: Sequence[Task]
    scorer: Callable[[Limits], Scorer]
    loop: asyncio.AbstractEventLoop
    told: Told
    stop: Event
    checkpoints: Path
    model: Path


def train_policy(options: GrpoOptions, session: TrlSession) -> int:
    """Train until ``max_steps`` or until told to stop; return the number of steps that are done, earlier starts
    included.

    Goes on from the newest checkpoint where one was kept. Blocks; torch's thread count holds for the thread that calls.

    Raises:
        InputError: a prompt does not fit.
        TrainingStopped: too much was ungraded.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"  # neither weights nor a card for the checkpoint are asked for
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, set_seed
    from transformers.utils import logging
    from trl import GRPOTrainer

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning)
    torch.set_num_threads(options.extras.threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    set_seed(options.seed)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    rows = list(_make_rows(options, session.tasks, tokenizer))
    ends = _find_end_ids(model, tokenizer)
    scorer = session.scorer(Limits(frozenset(ends), options.max_new_tokens, options.max_total_tokens))
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=_reward_function(scorer, session.loop, make_writer(tokenizer, ends)),
        args=_make_arguments(options, session),
        train_dataset=Dataset.from_list(rows),
        callbacks=[_make_callback(scorer, session)],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=find_newest(session.checkpoints))
    done = int(trainer.state.global_step)
    if options.extras.save_model and done >= options.max_steps:
        model.to(torch.bfloat16).save_pretrained(session.model)
        tokenizer.save_pretrained(session.model)
    return done


def _make_rows(options: GrpoOptions, tasks: Sequence[Task], tokenizer: Any) -> Any:
    for task in tasks:
        prompt = [{"role": message.role, "content": message.content} for message in task.messages]
        text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        length = len(tokenizer(text, add_special_tokens=False)["input_ids"])
        if length + options.max_new_tokens > options.max_total_tokens:
            raise InputError(
                f"the prompt of {task.task_id} and a full reply do not fit",
                field="trainer.max_total_tokens",
                found=f"{length} + {options.max_new_tokens} tokens",
                allowed=f"at most {options.max_total_tokens}",
            )
        yield {
            "prompt": prompt,
            "task": encode_task(task),
            "prompt_tokens": length,
            "think_prefilled": is_thinking_open(text),
        }


def _find_end_ids(model: Any, tokenizer: Any) -> set[int]:
    configured = model.generation_config.eos_token_id
    listed = configured if isinstance(configured, list) else [configured]
    return {int(token) for token in (*listed, tokenizer.eos_token_id) if token is not None}


def _make_arguments(options: GrpoOptions, session: TrlSession) -> Any:
    from trl import GRPOConfig

    batch = options.prompts_per_step * options.generations_per_prompt
    return GRPOConfig(
        output_dir=str(session.checkpoints),
        seed=options.seed,
        data_seed=options.seed,
        max_steps=options.max_steps,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=1,
        num_generations=options.generations_per_prompt,
        max_completion_length=options.max_new_tokens,
        temperature=options.extras.temperature,
        learning_rate=options.learning_rate,
        lr_scheduler_type="constant",
        beta=0.0,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_num_workers=0,
        log_level="error",
    )


def make_writer(tokenizer: Any, ends: Collection[int]) -> Callable[[str, Sequence[int]], str]:
    """Return a function from a completion's text, as TRL reads it, and its tokens to the text as the model wrote it.

    TRL leaves special tokens out. Where the tags around thinking are such tokens, the thinking would be graded as the
    answer.
    """
    tags = {
        place
        for place, token in tokenizer.added_tokens_decoder.items()
        if token.special and is_thinking_tag(token.content)
    }

    def write_text(text: str, ids: Sequence[int]) -> str:
        if tags.isdisjoint(ids):
            return text
        said: str = tokenizer.decode([token for token in ids if token not in ends], skip_special_tokens=False)
        return said

    return write_text


def _reward_function(
    scorer: Scorer, loop: asyncio.AbstractEventLoop, written: Callable[[str, Sequence[int]], str]
) -> Callable[..., Any]:
    async def gavel(
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        task: Sequence[str],
        prompt_tokens: Sequence[int],
        think_prefilled: Sequence[bool],
        trainer_state: Any,
        **_: Any,
    ) -> list[float | None]:
        """Score a step on the loop that holds the judges' connections; TRL awaits this on a loop of its own."""
        made = [
            TrlCompletion(one, written(reply[0]["content"], ids), tuple(ids), length, opened)
            for one, reply, ids, length, opened in zip(
                task, completions, completion_ids, prompt_tokens, think_prefilled, strict=True
            )
        ]
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(scorer.score_step(trainer_state.global_step + 1, made), loop)
        )

    return gavel


def _make_callback(scorer: Scorer, session: TrlSession) -> Any:
    from transformers import TrainerCallback

    class Progress(TrainerCallback):  # type: ignore[misc]  # transformers has no types for us
        began = 0.0

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            self.began = self.began or time.perf_counter()

        def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:  # noqa: ARG002
            if "loss" not in (logs or {}):
                return  # the totals at the end
            now = time.perf_counter()
            wanted = {
                "loss": "loss",
                "grad_norm": "grad_norm",
                "completions/mean_length": "tokens/mean",
                "entropy": "entropy",
            }
            figures = {
                name: float(value) for key, name in wanted.items() if (value := (logs or {}).get(key)) is not None
            }
            session.told(state.global_step, {**scorer.metrics, **figures, "seconds": now - self.began})
            self.began = now

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            if session.stop.is_set() and state.global_step < args.max_steps:
                control.should_training_stop = control.should_save = True
            return control

    return Progress()


def find_newest(checkpoints: Path) -> str | None:
    """Return the newest checkpoint that was kept, None if there is none."""
    found = sorted(checkpoints.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    return str(found[-1]) if found else None
