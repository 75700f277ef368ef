"""NeMo-RL's own rollout code on a CPU: stood in for are the generation (canned replies) and the tokenizer (small, our
templates).

Imported only where ``NEMO_RL_ROOT`` names a checkout, in an interpreter that has torch, Ray, transformers and NeMo-RL's
requirements.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from tests.envs.interfaces.nemo_rl_support import REPOSITORY, ROOT
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

SHIM = (
    "import sys, typing, typing_extensions\nif sys.version_info < (3, 12):\n    typing.TypedDict = "
    "typing_extensions.TypedDict\n"
)
"""NeMo-RL wants Python 3.13; this alone keeps ``algorithms.grpo`` from being imported on 3.11."""
exec(SHIM)
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from nemo_rl.distributed.batched_data_dict import BatchedDataDict  # noqa: E402

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "<|begin_of_text|>{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
# Like Qwen3's: a reply before the last user's message loses its thinking, and a switch pre-fills an empty block.
QWEN3 = (
    "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.index0 < ns.last %}{{ m.content.split('</think>')[-1].lstrip('\n') }}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and enable_thinking is "
    "false %}"
    "<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
PREFILLED = CHATML.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
"""Opens the thinking block in the prompt."""
_LLAMA = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|end_of_text|>")
TEMPLATES = {
    "chatml": (CHATML, "<|im_end|>", ("<|im_start|>", "<|im_end|>", "<|endoftext|>")),
    "llama3": (LLAMA3, "<|eot_id|>", _LLAMA),
    "qwen3": (QWEN3, "<|im_end|>", ("<|im_start|>", "<|im_end|>", "<|endoftext|>")),
    "prefilled": (PREFILLED, "<|im_end|>", ("<|im_start|>", "<|im_end|>", "<|endoftext|>")),
}  # fmt: skip


def make_tokenizer(name: str = "chatml") -> PreTrainedTokenizerFast:
    """A byte-level BPE trained on a few lines, so that tokens join over what one would not expect, with a template of
    ours.
    """
    template, end, special = TEMPLATES[name]
    inner = Tokenizer(models.BPE())
    # Line breaks stay together, as in the tokenizers of these families.
    words = Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    parts = [pre_tokenizers.Split(words, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    inner.pre_tokenizer = pre_tokenizers.Sequence(parts)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    inner.train_from_iterator(
        ["user\n\n persona speaks\n\nassistant\n", "chatbot 12 says\n\n\n", "<think>\n\n</think>\n\n so"] * 20, trainer
    )
    inner.add_special_tokens([AddedToken(token, special=True) for token in special])
    inner.add_tokens([AddedToken(token, special=False) for token in ("<think>", "</think>")])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=end, pad_token=special[-1])
    tokenizer.chat_template = template
    return tokenizer


Reply = Callable[[str, int], "str | tuple[str, bool]"]
"""(the text before it, how many replies stand there already) -> text, or text and whether it ends."""


class Canned:
    """Stands in for vLLM: replies follow from the text before them and the sample's place; cut ones lack the end
    token.
    """

    def __init__(self, tokenizer: Any, reply: Callable[[str, int], Any], *, limit: int | None = None) -> None:
        self.tokenizer, self.reply, self.limit, self.count = tokenizer, reply, limit, 0
        self.cfg = {"backend": "vllm", "vllm_cfg": {"async_engine": True}}

    def _ids(self, prompt: list[int]) -> tuple[list[int], bool]:
        said = self.reply(self.tokenizer.decode(prompt), self.count)
        self.count += 1
        if isinstance(said, Exception):
            raise said
        text, ends = said if isinstance(said, tuple) else (said, True)
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ([*ids, self.tokenizer.eos_token_id], False) if ends else (ids[: self.limit], True)

    def generate(self, data: Any, greedy: bool = False) -> Any:
        """Reply to each row."""
        rows = []
        for ids, length in zip(data["input_ids"], data["input_lengths"], strict=True):
            prompt = ids[: int(length)].tolist()
            rows.append((prompt, *self._ids(prompt)))
        width = max(len(prompt) + len(said) for prompt, said, _ in rows)
        output = torch.full((len(rows), width), self.tokenizer.pad_token_id, dtype=torch.int64)
        for place, (prompt, said, _) in enumerate(rows):
            output[place, : len(prompt) + len(said)] = torch.tensor(prompt + said)
        return BatchedDataDict(
            {
                "output_ids": output,
                "logprobs": torch.zeros(output.shape),
                "generation_lengths": torch.tensor([len(said) for _, said, _ in rows]),
                "unpadded_sequence_lengths": torch.tensor([len(prompt) + len(said) for prompt, said, _ in rows]),
                "truncated": torch.tensor([cut for *_, cut in rows]),
            }
        )

    async def generate_async(self, data: Any, greedy: bool = False) -> AsyncIterator[tuple[int, Any]]:
        """Reply to the rows, one after the other."""
        for place in range(len(data["input_ids"])):
            row = BatchedDataDict({key: value[place : place + 1] for key, value in data.items()})
            yield place, self.generate(row)


@contextmanager
def ray_cluster() -> Iterator[None]:
    """A small Ray without a dashboard, whose workers find us."""
    import ray

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(SHIM)
        Path(folder, "nemo_rl").symlink_to(
            Path(ROOT, "nemo_rl")
        )  # not the checkout itself: its ``tests`` would hide ours
        further = os.environ.get("GAVEL_GYM_CLIENT")  # a folder with nemo_gym, where no environment has both
        path = os.pathsep.join([folder, str(REPOSITORY / "src"), str(REPOSITORY), *([further] if further else [])])
        yield from _cluster(ray, path)


def _cluster(ray: Any, path: str) -> Iterator[None]:
    os.environ["PYTHONPATH"] = path
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": path}})
    try:
        yield
    finally:
        ray.shutdown()


def policy_section(tokenizer: Any, max_new: int = 512, max_total: int = 2048) -> dict[str, Any]:
    """What the hooks read of a trainer's config."""
    return {
        "max_total_sequence_length": max_total,
        "generation": {"max_new_tokens": max_new, "stop_token_ids": [tokenizer.eos_token_id]},
    }


def batch_of(path: Path, env: str, tokenizer: Any, generations: int, **options: Any) -> Any:
    """The batch that the trainer would roll out: a file's rows, each ``generations`` times."""
    from nemo_rl.data.collate_fn import rl_collate_fn
    from nemo_rl.data.datasets import load_response_dataset
    from nemo_rl.data.datasets.processed_dataset import AllTaskProcessedDataset

    from gavel.envs.interfaces.nemo_rl.register import DATASET

    data = load_response_dataset(
        {
            "dataset_name": DATASET,
            "data_path": str(path),
            "env_name": f"gavel_{env}",
            "env": env,
            "split": "train",
            "multi_turn": env == "vera_mh",
            **options,
        }
    )
    rows = AllTaskProcessedDataset(
        data.dataset, tokenizer, None, {data.task_name: (data.task_spec, data.processor)}, max_seq_length=2048
    )
    return rl_collate_fn([rows[place] for place in range(len(rows))]).repeat_interleave(generations)


@contextmanager
def hooked(driver: Any, install: Callable[[Any], None] | None = None) -> Iterator[Any]:
    """Install a driver's hooks, and take them out again: a process that trains does the first only."""
    from importlib import import_module

    from gavel.envs.interfaces.nemo_rl import hooks

    modules = [import_module(name) for name in hooks.NEEDED]
    kept = [
        (module, name, getattr(module, name))
        for module, names in zip(modules, hooks.NEEDED.values(), strict=True)
        for name in names
    ]
    kept += [(cls, "compute_advantage", cls.compute_advantage) for cls in hooks._find_estimators(modules[2])]
    (install or hooks.install_hooks)(driver)
    try:
        yield driver
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)


def roll(
    mode: str, generation: Any, batch: Any, tokenizer: Any, handles: dict[str, Any], turns: int = 4, limit: int = 2048
) -> Any:
    """Run the trainer's rollout, hooks included."""
    import nemo_rl.algorithms.grpo as grpo

    run = {"sync": grpo.run_multi_turn_rollout, "async": grpo.run_async_multi_turn_rollout}[mode]
    return run(
        policy_generation=generation,
        input_batch=batch,
        tokenizer=tokenizer,
        task_to_env=handles,
        max_seq_len=limit,
        max_rollout_turns=turns,
        greedy=False,
    )


class StandIn:
    """A policy that learns nothing and keeps what it was to train on."""

    def __init__(self) -> None:
        self.trained: list[Any] = []
        self.sharding_annotations = SimpleNamespace(get_axis_size=lambda _: 1)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **options: None

    def get_logprobs(self, data: Any, timer: Any = None) -> dict[str, Any]:
        """Zeros."""
        return {"logprobs": torch.zeros(data["input_ids"].shape)}

    def get_reference_policy_logprobs(self, data: Any, timer: Any = None) -> dict[str, Any]:
        """Zeros."""
        return {"reference_logprobs": torch.zeros(data["input_ids"].shape)}

    def train(self, data: Any, loss_fn: Any, timer: Any = None) -> dict[str, Any]:
        """Keep the batch."""
        self.trained.append(data)
        counts = {
            "global_valid_seqs": [1.0],
            "global_valid_toks": [1.0],
            "gen_kl_error": [0.0],
            "token_mult_prob_error": [1.0],
            "lr": [0.0],
        }
        return {"loss": torch.tensor([0.0]), "grad_norm": torch.tensor([0.0]), "all_mb_metrics": counts}


class Log:
    """A logger that keeps its metrics by prefix and step."""

    def __init__(self) -> None:
        self.metrics: dict[tuple[str, int], dict[str, Any]] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **options: None

    def log_metrics(self, metrics: dict[str, Any], step: int, prefix: str = "", **options: Any) -> None:
        """Keep them."""
        self.metrics.setdefault((prefix, step), {}).update(metrics)


class StandInGeneration(Canned):
    """Canned replies with the rest of what ``grpo_train`` asks of a generation."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__") or name in (
            "weight_synchronizer",
            "snapshot_step_metrics",
            "get_step_metrics",
            "requires_kv_scale_sync",
        ):
            raise AttributeError(name)
        return lambda *args, **options: {}
