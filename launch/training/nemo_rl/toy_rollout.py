"""A toy batch with a lost sample through NeMo-RL's hooked rollouts, validation, logging and mask filter, on the CPU.

Stood in for are the engine (one reply), the tokenizer, the environment's actor and Ray's ``get``; all else is the
checkout's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from gavel.envs.failure_policy import FailurePolicy
from gavel.envs.interfaces.nemo_rl.async_driver import AsyncDriver
from gavel.envs.interfaces.nemo_rl.contract import GYM_ROLLOUT, LOGGING
from gavel.envs.interfaces.nemo_rl.gym_driver import GymDriver, wrap_gym_rollout
from gavel.envs.interfaces.nemo_rl.gym_groups import GROUP, wrap_group
from gavel.envs.interfaces.nemo_rl.ledger import SampleVerdict, encode_verdicts
from gavel.envs.interfaces.nemo_rl.masking import GRADED
from gavel.envs.interfaces.nemo_rl.returned import fill_fields, find_type
from gavel.envs.interfaces.nemo_rl.stamps import ENDING, RESULT, UID, UNDRAWN, VERDICT, Samples, list_rows, make_info
from gavel.models.codec import to_json
from gavel.models.errors import InputError
from gavel.models.failures import Failure, FailureKind

NAME = "toy"
_END, _PAD, _SAID = 2, 0, 5
_PLACEHOLDER = 0.5
_CLOSE = 1e-5
POLICY: Mapping[str, Any] = {
    "max_total_sequence_length": 64, "generation": {"max_new_tokens": 8, "stop_token_ids": [_END], "backend": "vllm"},
}  # fmt: skip


class Settings(SimpleNamespace):
    """Options: objects in later versions of NeMo-RL, mappings in v0.7.0; what is not set is None, as what a later
    version adds.
    """

    def __getitem__(self, name: str) -> Any:
        return vars(self).get(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


@dataclass
class ToyEnvironment:
    """Stands in for our actor: grades by the samples' order, all but the one that is lost, and remembers by uid."""

    rewards: Sequence[float]
    lost: int
    verdicts: dict[str, SampleVerdict] = field(default_factory=dict)
    told: list[bool] = field(default_factory=list)

    @property
    def step(self) -> Any:
        """The method as a handle of Ray has it."""
        return SimpleNamespace(remote=lambda _messages, infos: _Done(self._grade_rows(infos)))

    @property
    def report(self) -> Any:
        """The method as a handle of Ray has it."""

        async def tell(uids: Sequence[str]) -> Mapping[str, Any]:
            return self.tell_verdicts(uids)

        return SimpleNamespace(remote=tell)

    def tell_verdicts(self, uids: Sequence[str]) -> Mapping[str, Any]:
        """Tell verdicts, as our actor does."""
        return {"verdicts": encode_verdicts([self.verdicts.get(uid) for uid in uids]), "metrics": {}}

    def _grade_rows(self, infos: Sequence[Mapping[str, Any]]) -> Any:
        import torch

        places = [int(info["place"]) for info in infos]
        self.told += [ENDING in info and UID in info for info in infos]
        for place, info in zip(places, infos, strict=True):
            if place != self.lost:
                self.verdicts[info[UID]] = SampleVerdict(info[UID], 0, NAME, "X", self.rewards[place], {}, None, 0, 0.0)
        given = [_PLACEHOLDER if place == self.lost else self.rewards[place] for place in places]
        values = (
            [{"role": "environment", "content": ""} for _ in places],
            [None] * len(places),
            [None] * len(places),
            torch.tensor(given),
            torch.ones(len(places)),
            [None] * len(places),
        )
        graded, kind = torch.tensor([place != self.lost for place in places]), find_type()
        filled = fill_fields(kind, values, graded)
        return filled if kind is None else kind(*filled)


@dataclass(frozen=True, eq=False)
class _Done:
    """Stands in for Ray's reference to a result."""

    value: Any


class _Tokenizer:
    """A tokenizer of numbers."""

    pad_token_id, eos_token_id = _PAD, _END

    def __call__(self, text: str, **_: Any) -> Any:  # noqa: ARG002 - NeMo-RL's contract
        import torch

        return SimpleNamespace(input_ids=torch.zeros(1, 0, dtype=torch.int64))

    def decode(self, ids: Any, **_: Any) -> str:
        return "prompt" if len(ids) else ""

    def batch_decode(self, rows: Sequence[Any], **_: Any) -> list[str]:
        return ["yes" for _ in rows]


class _Engine:
    """Stands in for vLLM: one token and the end."""

    cfg: Mapping[str, Any] = {"backend": "vllm", "vllm_cfg": {"async_engine": True}}

    def generate(self, data: Any, greedy: bool = False) -> Any:  # noqa: ARG002 - NeMo-RL's contract
        """Reply to each row; all prompts of a toy batch are of one length."""
        import torch

        rows, length = len(data["input_ids"]), int(data["input_lengths"][0])
        said = torch.tensor([_SAID, _END]).expand(rows, 2)
        output = torch.cat([data["input_ids"][:, :length], said], dim=1)
        return _load_batched_dict()(
            {
                "output_ids": output,
                "logprobs": torch.zeros(output.shape),
                "generation_lengths": torch.full((rows,), 2),
                "unpadded_sequence_lengths": torch.full((rows,), length + 2),
                "truncated": torch.zeros(rows, dtype=torch.bool),
            }
        )

    async def generate_async(self, data: Any, greedy: bool = False) -> AsyncIterator[tuple[int, Any]]:
        """Reply to the rows, one after the other."""
        for place in range(len(data["input_ids"])):
            yield (
                place,
                self.generate(
                    _load_batched_dict()({key: value[place : place + 1] for key, value in data.items()}), greedy
                ),
            )


def _load_batched_dict() -> Any:
    return import_module("nemo_rl.distributed.batched_data_dict").BatchedDataDict


def make_batch(size: int) -> Any:
    """Return a batch of ``size`` samples of one prompt, as a data loader gives it."""
    import torch

    return _load_batched_dict()(
        {
            "message_log": [
                [{"role": "user", "content": "prompt", "token_ids": torch.tensor([3, 4, 5])}] for _ in range(size)
            ],
            "extra_env_info": [{**make_info("{}", "train", None, None), "place": place} for place in range(size)],
            "task_name": [NAME] * size,
            "idx": list(range(size)),
            "loss_multiplier": torch.ones(size),
        }
    )


@contextlib.contextmanager
def replace_ray(module: Any) -> Iterator[None]:
    """Let a module's ``ray.get`` give what the toy environment has done."""
    kept = module.ray
    module.ray = SimpleNamespace(
        get=lambda done, **_: [one.value for one in done] if isinstance(done, list) else done.value
    )
    try:
        yield
    finally:
        module.ray = kept


def check_rollout(name: str, environment: ToyEnvironment) -> str:
    """Roll a batch out with one of the trainer's functions; return what is wrong with it, empty where nothing is."""
    trainer, size = import_module("nemo_rl.algorithms.grpo"), len(environment.rewards)
    with replace_ray(import_module("nemo_rl.experience.rollouts")):
        final, metrics = getattr(trainer, name)(
            policy_generation=_Engine(),
            input_batch=make_batch(size),
            tokenizer=_Tokenizer(),
            task_to_env={NAME: environment},
            max_seq_len=64,
            max_rollout_turns=1,
            greedy=False,
        )
    return _check_marked(environment, final) or _find_difference(
        "reward/graded_mean", [metrics["reward/graded_mean"]], [_compute_kept_mean(environment)]
    )


async def check_collector(environment: ToyEnvironment) -> str:
    """Let the asynchronous trainer's collector roll out and mark a group, without Ray's actor around it, and the driver
    read the batch; return what is wrong, empty where nothing is.
    """
    import torch

    from gavel.envs.interfaces.nemo_rl.collector import GavelCollector

    collector: Any = GavelCollector.__new__(GavelCollector)
    size = len(environment.rewards)
    collector.policy_generation, collector.tokenizer = _Engine(), _Tokenizer()
    collector.task_to_env, collector.master_config = {NAME: environment}, Settings(policy=POLICY)
    collector._max_rollout_turns, collector._deduplicate_multimodal_data = 1, False
    batch = make_batch(size)
    batch["extra_env_info"] = Samples().stamp_infos(batch["extra_env_info"], list_rows(batch))
    with replace_ray(import_module("nemo_rl.experience.rollouts")):
        rolled = collector._iter_rollout_groups(
            repeated_batch=batch, num_generations=size, use_nemo_gym=False, task_index_to_group_index={}
        )
        groups = [group.final_batch async for group in rolled]
    if len(groups) != 1:
        return f"one group of prompts came as {len(groups)}"
    AsyncDriver(POLICY, FailurePolicy(max_ungraded_fraction=1.0)).record_batch(groups[0], torch.ones(size, 1))
    return _check_marked(environment, groups[0])


@dataclass(frozen=True)
class _ToyGym:
    """Stands in for NeMo-RL's actor of NeMo Gym and our agent behind it: the lost sample has no token of its own."""

    environment: ToyEnvironment

    @property
    def run_rollouts(self) -> Any:
        """The method as a handle of Ray has it."""
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self._stream_rows))

    async def _stream_rows(self, rows: Sequence[Mapping[str, Any]], *_: Any) -> AsyncIterator[Any]:
        for row in rows:
            yield self._answer_row(row)

    async def _answer_row(self, row: Mapping[str, Any]) -> tuple[int, dict[str, Any], dict[str, Any]]:
        import torch

        place, lost = int(row["place"]), int(row["place"]) == self.environment.lost
        self.environment.told.append(UID in row)
        failure = Failure(FailureKind.JUDGE_FAILED, "judge", "lost") if lost else None
        reward = None if lost else self.environment.rewards[place]
        verdict = to_json(SampleVerdict(row[UID], 0, NAME, "X", reward, {}, failure, 0, 0.0)).decode()
        full = {"reward": 0.0 if lost else reward, VERDICT: verdict, RESULT: None, UNDRAWN: "true" if lost else "false"}
        prompt, said = torch.tensor([_PAD] if lost else [3, 4, 5]), torch.tensor([_SAID, _END])
        log = [
            {"role": "user", "content": "", "token_ids": prompt},
            {"role": "assistant", "content": "", "token_ids": said, "generation_logprobs": torch.zeros(2)},
        ]
        return row["_rowidx"], {"message_log": log, "input_message_log": log[:1], "full_result": full}, {}


def check_gym_rollout(environment: ToyEnvironment) -> str:
    """Roll a batch out as NeMo Gym's are, with the trainer's own function; return what is wrong, empty where nothing
    is.
    """
    trainer: Any = import_module("nemo_rl.algorithms.grpo")
    rollouts: Any = import_module("nemo_rl.experience.rollouts")
    driver = GymDriver(POLICY, FailurePolicy(max_ungraded_fraction=1.0), environments={})
    batch, kept = make_batch(len(environment.rewards)), getattr(rollouts, GROUP)
    batch["idx"] = [0] * len(environment.rewards)
    for info in batch["extra_env_info"]:
        info |= {"responses_create_params": {"input": []}, "agent_ref": {"name": f"{NAME}_agent"}}
    setattr(rollouts, GROUP, wrap_group(kept, rollouts.calculate_single_metric))
    generation = {"max_new_tokens": 8, "stop_strings": None, "stop_token_ids": None, "temperature": 1.0, "top_p": 1.0}
    engine = SimpleNamespace(cfg={"vllm_cfg": {"max_model_len": 64}})
    try:
        rolled = wrap_gym_rollout(driver, getattr(trainer, GYM_ROLLOUT))(
            policy_generation=engine,
            input_batch=batch,
            tokenizer=_Tokenizer(),
            task_to_env={"nemo_gym": _ToyGym(environment)},
            generation_config={**generation, "top_k": None},
            log_full_result_tables=False,
        )
    finally:
        setattr(rollouts, GROUP, kept)
    if len({tuple(ids) for ids in rolled.input_ids.tolist()}) != 1:
        return "a sample of which nothing was drawn leaves its group"
    return _check_marked(environment, rolled.final_batch) or _find_difference(
        "total_reward/mean", [rolled.rollout_metrics["total_reward/mean"]], [_compute_kept_mean(environment)]
    )


def _compute_kept_mean(environment: ToyEnvironment) -> float:
    kept = [reward for place, reward in enumerate(environment.rewards) if place != environment.lost]
    return sum(kept) / len(kept)


def _check_marked(environment: ToyEnvironment, final: Any) -> str:
    """Say what is wrong with the marks of a rolled-out batch, empty where nothing is."""
    size = len(environment.rewards)
    kept = [place for place in range(size) if place != environment.lost]
    if len(environment.told) != size or not all(environment.told):
        return "samples reach the environment without a number, or without how their reply ended"
    for key, wanted in (
        ("total_reward", [environment.rewards[place] if place in kept else 0.0 for place in range(size)]),
        ("loss_multiplier", [float(place in kept) for place in range(size)]),
        (GRADED, [float(place in kept) for place in range(size)]),
    ):
        if problem := _find_difference(key, final[key].tolist(), wanted):
            return problem
    return ""


def check_validation(environment: ToyEnvironment) -> str:
    """Validate on a batch; return what is wrong with its accuracy, empty where nothing is."""
    size = len(environment.rewards)
    config = Settings(
        grpo=Settings(val_num_generations_per_prompt=1, max_val_samples=size, val_batch_size=size, max_rollout_turns=1),
        policy=POLICY,
        env={},
        logger={"num_val_samples_to_print": 0, "wandb_enabled": False, "wandb": {}},
    )
    with replace_ray(import_module("nemo_rl.experience.rollouts")):
        trainer: Any = import_module("nemo_rl.algorithms.grpo")
        metrics, _ = trainer.validate(
            _Engine(), [make_batch(size)], _Tokenizer(), {NAME: environment}, step=0, master_config=config
        )
    return _find_difference("accuracy", [metrics["accuracy"]], [_compute_kept_mean(environment)])


def check_logging(note: Callable[[Any, Any], None], graded: Any) -> str:
    """Log a step of which ``graded`` says what counts; return what is wrong with its figures, empty where nothing
    is.
    """
    import torch

    batch = _load_batched_dict()({"extra_env_info": [{}] * len(graded), GRADED: graded})
    note(batch, torch.ones(len(graded), 2))
    advantages = torch.where(graded != 0, torch.ones(len(graded)), torch.full((len(graded),), 99.0))
    metrics: dict[str, Any] = {}
    log = getattr(import_module("nemo_rl.algorithms.grpo"), LOGGING)
    log(
        logger=SimpleNamespace(log_histogram=lambda *_, **__: None),
        total_steps=0,
        metrics=metrics,
        baseline=torch.ones(len(graded)),
        advantages=advantages,
    )
    return _find_difference("advantages/mean", [metrics["advantages/mean"]], [1.0])


def check_mask_filter(graded: Any) -> str:
    """Let the trainer's own filter run over a batch in which it masks the first sample; the lost one must stay without
    weight.
    """
    import torch

    trainer: Any = import_module("nemo_rl.algorithms.grpo")
    masked = torch.zeros(len(graded), dtype=torch.bool)
    masked[0] = True
    batch = _load_batched_dict()({"loss_multiplier": graded.clone(), "mask_sample": masked})
    trainer._apply_mask_sample_filter(batch)
    return _find_difference("loss_multiplier", batch["loss_multiplier"].tolist(), [0.0, *graded.tolist()[1:]])


def check_data_setup() -> str:
    """Call the trainer's data setup with a file that is not there; it must be found before anything is made."""
    data: Any = import_module("nemo_rl.data.utils")
    dataset = import_module("gavel.envs.interfaces.nemo_rl.register").DATASET
    entry = {"dataset_name": dataset, "data_path": "/no/such/toy.jsonl", "env": "abstention", "env_name": NAME}
    try:
        data.setup_response_data(tokenizer=_Tokenizer(), data_config={"train": entry}, env_configs={})
    except InputError:
        return ""
    return "prompts are not looked at before datasets and actors are made"


def _find_difference(what: str, found: Sequence[float], wanted: Sequence[float]) -> str:
    for place, (got, right) in enumerate(zip(found, wanted, strict=True)):
        if not abs(got - right) <= _CLOSE * max(1.0, abs(right)):
            where = f" of sample {place}" if len(wanted) > 1 else ""
            return f"{what}{where} is {got:g} instead of {right:g}"
    return ""
