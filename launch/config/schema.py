"""The config of every verb, as frozen dataclasses: what Hydra composes is read into these once, and nothing below sees
a DictConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from gavel.envs.failure_policy import FailurePolicy
from gavel.judges.assets import AssetsConfig as AssetsConfig
from gavel.judges.certificate import Qualification
from gavel.judges.probing.canary import CanaryRules
from gavel.judges.types import Judging, RubricConfig
from gavel.launch.config.serving_schema import GymConfig, HttpConfig
from gavel.launch.config.training_schema import ClusterConfig, Placement, TrainedOptions, TrainerOptions, WatchRules
from gavel.models.codec import FieldError, record
from gavel.models.service import Service


@record
class TasksConfig:
    """Where the tasks come from: a ``tasks.jsonl`` of ours, or a source file, adapted on the fly.

    ``limit`` takes the first n.
    """

    path: str | None = None
    limit: int | None = None


@record
class RunConfig:
    """The run folder; None makes ``runs/<env>-<time>``."""

    dir: str | None = None


@record
class BudgetConfig:
    """What one session may send over all services; None sets no limit. When it is spent, no further row is begun and
    running ones settle. ``max_calls``: requests, each further try counted; ``max_tokens``: of prompts and replies, as
    the servers count them."""

    max_calls: int | None = None
    max_tokens: int | None = None


@record
class WandbExport:
    """A run in Weights & Biases; None for ``project`` exports nothing.

    ``mode`` ``offline`` writes into the run folder alone.
    """

    project: str | None = None
    entity: str | None = None
    group: str | None = None
    name: str | None = None
    mode: Literal["online", "offline"] = "online"
    base_url: str | None = None


@record
class MlflowExport:
    """A run in MLflow; None for ``tracking_uri`` exports nothing."""

    tracking_uri: str | None = None
    experiment: str = "gavel"
    name: str | None = None


@record
class ExportConfig:
    """Where a finished run's figures are shown besides its folder; never what a model said. Each export is given up
    after ``timeout_s`` seconds."""

    wandb: WandbExport = WandbExport()
    mlflow: MlflowExport = MlflowExport()
    timeout_s: float = 60.0


@record
class Composition:
    """What every judging verb composes. ``env`` and ``reward`` hold ``name`` and the options of what they name."""

    env: Mapping[str, Any]
    policy: Service
    judge: Service
    services: Mapping[str, Service]
    rubrics: Mapping[str, RubricConfig]
    judging: Judging
    assets: AssetsConfig

    @property
    def service_table(self) -> Mapping[str, Service]:
        """Every service by name: ``policy``, ``general`` (the config's ``judge``) and those under ``services``."""
        return {"policy": self.policy, "general": self.judge, **self.services}


@record
class RolloutConfig(Composition):
    """``gavel rollout``: policy x env x judge x reward over tasks.

    ``inspect`` shows one task's story; ``show_sensitive`` unfolds transcripts that are folded under a content note.
    ``retry=given_up`` plays rows once more that are given up. ``judge_folder`` is where another job serves the managed
    judges. ``shard`` (``i/n``) plays one part; no row begins that
    would not end before ``deadline`` with ``deadline_margin`` to spare, both seconds or texts such as ``45m`` and
    ``1h30m``. ``trust`` starts what the config of a folder made elsewhere names; false where it was not said for such a
    folder.
    """

    reward: Mapping[str, Any]
    failure: FailurePolicy
    tasks: TasksConfig
    run: RunConfig
    rollouts_per_task: int = 1
    concurrency: int = 64
    certificates: str = "certificates"
    inspect: str | None = None
    show_sensitive: bool = False
    retry: str | None = None
    budget: BudgetConfig = BudgetConfig()
    report: bool = True
    deadline: str | float | None = None
    deadline_margin: str | float | None = None
    shard: str | None = None
    judge_folder: str | None = None
    export: ExportConfig = ExportConfig()
    trust: bool | None = None
    dry_run: bool = False


@record
class RegradeConfig:
    """``gavel regrade RUN``: ``only=ungraded`` completes the run itself; ``only=all`` grades every transcript again
    into ``into``.

    None for a part keeps what the run was made with. ``trust`` starts what the config of a folder made elsewhere names.
    """

    run: RunConfig
    only: str = "ungraded"
    into: str | None = None
    judge: Service | None = None
    rubrics: Mapping[str, RubricConfig] | None = None
    services: Mapping[str, Service] | None = None
    judging: Judging | None = None
    concurrency: int = 64
    budget: BudgetConfig = BudgetConfig()
    deadline: str | float | None = None
    deadline_margin: str | float | None = None
    trust: bool | None = None
    dry_run: bool = False


@record
class MergeConfig:
    """``gavel merge RUN RUN … into=DIR``: shards of one run become a whole run; ``partial`` allows shards to be
    missing.
    """

    runs: tuple[str, ...] = ()
    into: str | None = None
    partial: bool = False


@record
class RescoreConfig:
    """``gavel rescore RUN reward=…``: another reward policy over stored outcomes, into a child run."""

    run: RunConfig
    reward: Mapping[str, Any]
    into: str | None = None
    dry_run: bool = False


@record
class PrepareConfig:
    """``gavel prepare``: pinned assets fetched and verified, a source adapted to ``tasks.jsonl`` with a manifest in
    ``out``.

    ``services`` are called only where the tasks need a model's words (openings). ``format=nemo_gym`` also writes the
    tasks as rows of NeMo Gym's form; ``agent`` is what runs them there, None for the agent of our own gateway.
    """

    env: Mapping[str, Any]
    source: Mapping[str, Any]
    rubrics: Mapping[str, RubricConfig]
    judging: Judging
    assets: AssetsConfig
    services: Mapping[str, Service] = field(default_factory=dict)
    out: str | None = None
    format: Literal["gavel", "nemo_gym"] = "gavel"
    agent: str | None = None
    dry_run: bool = False


@record
class ProbeConfig(Composition):
    """``gavel probe``: known-answer controls and attacks on each binding; ``certificates`` is the folder of
    certificates. A probe whose ``budget`` is spent writes none."""

    run: RunConfig
    certificates: str = "certificates"
    concurrency: int = 16
    budget: BudgetConfig = BudgetConfig()
    dry_run: bool = False


@record
class CalibrateConfig(Composition):
    """``gavel calibrate``: agreement of each binding's judge with a labelled file.

    With ``upstream``, a checkout of the code that the environment follows, the finished run ``run`` is compared with it
    instead, and no model is called; ``upstream_python`` is an interpreter that has what upstream needs (None: this
    one). ``labelled`` is the file (``pkg:`` for one we ship); ``repeats`` calls per item measure the flip rate;
    ``draws`` and ``seed`` are the bootstrap's.
    """

    run: RunConfig
    labelled: str | None = None
    upstream: str | None = None
    upstream_python: str | None = None
    certificates: str = "certificates"
    limit: int | None = None
    repeats: int = 1
    draws: int = 2000
    seed: int = 0
    concurrency: int = 16
    budget: BudgetConfig = BudgetConfig()
    dry_run: bool = False


@record
class JudgeConfig:
    """``gavel judge``: serve the managed judge in the foreground."""

    judge: Service
    run: RunConfig
    dry_run: bool = False


@record
class ReportConfig:
    """``gavel report RUN``: ``out`` is the file; None writes ``report.<format>`` into the run."""

    run: RunConfig
    format: Literal["html", "md", "csv"] = "html"
    out: str | None = None


@record
class VerifyConfig:
    """``gavel verify RUN``: whether the folder says what was written into it."""

    run: RunConfig


@record
class ViewConfig:
    """``gavel view RUN``: serve the run's report on this machine; ``port`` 0 picks a free one."""

    run: RunConfig
    port: int = 0


@record
class LabelConfig:
    """``gavel label RUN``: people label ``sample`` of the questions that a judge was asked. ``annotator`` None only
    says how the labels agree; ``binding`` None is the only one; ``slice`` is what ``draw=slices`` draws by, ``other``
    a run whose judge was asked the same; ``port`` 0 picks a free one.
    """

    run: RunConfig
    annotator: str | None = None
    binding: str | None = None
    sample: int = 50
    draw: Literal["random", "slices", "disagreements"] = "random"
    slice: str | None = None
    other: str | None = None
    seed: int = 0
    port: int = 0

    def __post_init__(self) -> None:
        if self.sample < 1:
            raise FieldError("sample", self.sample, "at least 1")
        if not 0 <= self.port <= 65535:
            raise FieldError("port", self.port, "0 to 65535; 0 picks a free one")
        if (self.draw == "slices") != (self.slice is not None):
            raise FieldError("slice", self.slice, "the name of a slice with draw=slices, and null without")
        if self.other is not None and self.draw != "disagreements":
            raise FieldError("other", self.other, "a run, with draw=disagreements alone")


@record
class ReproduceConfig:
    """``gavel reproduce NAME``: figures that others published, computed again. ``data`` is a folder with copies of the
    pinned files, ``OWNER/NAME/PATH``; what is not there is fetched unless ``assets.offline``.
    """

    name: str = "all"
    data: str | None = None
    assets: AssetsConfig = AssetsConfig()


@record
class ServeConfig(Composition):
    """``gavel serve``: environments over HTTP. The one of the composition is served as ``name`` (None: its own name),
    those of ``also`` under their keys; a value has the words of a command line (``env=vera_mh …``), as a text or a
    list. ``run`` takes servers' logs, ``config_dirs`` are folders of the user's own (``--config-dir``)."""

    reward: Mapping[str, Any]
    run: RunConfig
    name: str | None = None
    also: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    http: HttpConfig = HttpConfig()
    gym: GymConfig = GymConfig()
    config_dirs: tuple[str, ...] = ()
    dry_run: bool = False


@record
class CompareConfig:
    """``gavel compare A B …``: paired comparison; the first run is the base.

    ``out`` is a folder for CSV, Markdown, JSON, a picture.
    """

    runs: tuple[str, ...] = ()
    out: str | None = None
    window: int = 5
    draws: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.window < 1:
            raise FieldError("window", self.window, "at least 1")


@record
class DuelConfig(Composition):
    """``gavel duel A B …``: replies of runs, or of files, against each other by a rubric of pairs.

    ``run`` is the folder of its verdicts, which the same command goes on in; ``draws`` and ``seed`` are the bootstrap's
    of strengths.
    """

    run: RunConfig
    runs: tuple[str, ...] = ()
    draws: int = 2000
    seed: int = 0
    concurrency: int = 16
    budget: BudgetConfig = BudgetConfig()
    dry_run: bool = False


@record
class ExportRunConfig:
    """``gavel export RUN``: the figures of a stored run, to W&B or MLflow."""

    run: RunConfig
    export: ExportConfig = ExportConfig()


@record
class ListConfig:
    """``gavel list [WHAT]``: what can be chosen; ``config_dirs`` are folders of the user's own (``--config-dir``)."""

    what: str | None = None
    format: Literal["text", "json"] = "text"
    config_dirs: tuple[str, ...] = ()


@record
class TaskSchemaConfig:
    """``gavel schema ENV``: the JSON Schema of a task's row; ``what`` is the environment, ``out`` a file, None prints
    it.
    """

    what: str | None = None
    out: str | None = None


@record
class NewConfig:
    """``gavel new env NAME``: files to begin with, in ``into`` (None: ``./NAME``)."""

    what: str | None = None
    name: str | None = None
    into: str | None = None


@record
class TrainConfig(Composition):
    """``gavel train``: preflight, a run folder, and a trainer started here or on Slurm; ``hygiene_required`` false
    trains on tasks that were never compared with a protected set, which is recorded. ``canary`` None asks the judges no
    known answers while it runs, ``watch`` None measures no replies. ``envs`` are the environments of a training in
    several, which the command line chooses by ``env@envs.NAME=…``; what stands beside it is then the first one's, and
    what all of them bind."""

    reward: Mapping[str, Any]
    failure: FailurePolicy
    tasks: TasksConfig
    run: RunConfig
    trainer: TrainerOptions
    cluster: ClusterConfig
    validation: TasksConfig = TasksConfig()
    placement: Placement = Placement()
    qualification: Qualification = Qualification()
    certificates: str = "certificates"
    canary: CanaryRules | None = CanaryRules()
    watch: WatchRules | None = WatchRules()
    hygiene_required: bool = True
    seed: int = 42
    dry_run: bool = False
    envs: Mapping[str, TrainedOptions] = field(default_factory=dict)


@record
class StatusConfig:
    """``gavel status RUN``: ``lines`` of the newest log are shown."""

    run: RunConfig
    lines: int = 10
