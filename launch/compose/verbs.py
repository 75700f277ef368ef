"""The verbs of the ``gavel`` command, in one table; names only, so that reading it imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

from gavel.models.errors import ConfigError, find_nearest

SWEPT = ("train", "rescore")
"""The verbs that have sweeps."""

GROUPS = ("env", "policy", "judge", "reward", "failure", "source", "trainer", "cluster", "experiment")
"""The config groups every primary config lists, so that one experiment file serves every verb."""


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: ``module`` has ``run(config, console) -> int``; ``schema`` names the class of its config in
    ``gavel.launch.config.schema``, or with its module before it (``gavel.launch.commands.count.CountConfig``).

    ``groups`` are the config groups that matter to it, ``examples`` pairs of a command's tail and what it does,
    ``keys`` pairs of a key and what it means.
    """

    name: str
    summary: str
    module: str
    schema: str
    groups: tuple[str, ...]
    examples: tuple[tuple[str, str], ...]
    keys: tuple[tuple[str, str], ...]
    words: tuple[str, ...] = ("run.dir",)
    """The keys that words of their own after the verb fill, in order; ``runs`` takes all of them."""


_RUN = ("run.dir=DIR", "the run folder; also the first word after the verb")
_DRY = ("dry_run=true", "say what would be done, and do nothing")
_SLURM = ("cluster=slurm", "hand it to Slurm; cluster.partition=NAME, cluster.time=… (docs/slurm.md)")
_SERVICES = ("services.NAME.…", "a further model: the keys are those of policy and judge")
_DEADLINE = (
    "deadline=TIME",
    "seconds, 45m or 2h from now: no row begins that would not end in time; deadline_margin=TIME to spare",
)
_EXPORT = (
    ("export.wandb.project=NAME", "figures of the finished run to W&B; also entity, group, name, mode=offline"),
    ("export.mlflow.tracking_uri=URI", "the same to MLflow; also experiment, name"),
)
_TRUST = ("trust=true", "start the programs that the config of a folder made elsewhere names (docs/run_folder.md)")
_OFFLINE = ("assets.offline=true", "no downloads; assets.mirror=DIR is a folder that is tried first")

_TABLE = (
    Verb(
        "prepare", "Fetch and verify pinned assets, and adapt a source to tasks.jsonl with a "
                   "manifest.", "gavel.launch.commands.prepare",
        "PrepareConfig", ("env", "source", "experiment"),
        (
            ("env=abstention", "fetch and verify what the environment's rubrics need"),
            ("env=abstention source.path=train.jsonl out=data/abstention", "adapt a file you have"),
            ("env=abstention assets.mirror=/mnt/assets assets.offline=true", "the same on a machine without a network"),
            ("env=abstention source.path=train.jsonl "
             "format=nemo_gym", "also as rows of NeMo Gym's form (docs/nemo_gym.md)"),
        ),
        (
            ("source.path=FILE", "the source file"),
            ("source.protected=[FILE,…]", "questions no task may repeat, such as those you evaluate on"),
            ("out=DIR", "where tasks.jsonl and its manifest go; data/ENV if it is not given"),
            ("format=nemo_gym", "also rows of NeMo Gym's form; agent=NAME is what plays them there"), _OFFLINE, _DRY,
        ),
    ),
    Verb(
        "rollout", "Ask the policy, judge its replies, reward them: graded rows, metrics and receipts in a run folder.",
        "gavel.launch.commands.rollout", "RolloutConfig", ("env", "policy", "judge", "reward", "failure", "experiment"),
        (
            ("experiment=demo", "the whole loop on this machine: no GPU, no key, 24 questions"),
            (
                "env=abstention policy=external policy.base_url=http://127.0.0.1:8000/v1 policy.model=my-model "
                "judge=qwen3_32b "
                "tasks.path=data/abstention/tasks.jsonl run.dir=runs/first",
                "a model you serve, judged by a Qwen3-32B that is served here",
            ),
            ("experiment=demo reward=omniscience tasks.limit=3 "
             "run.dir=runs/three", "another reward, the first three tasks"),
            ("runs/demo experiment=demo", "go on with a run where it stopped (this is what running it again does)"),
            ("runs/demo experiment=demo inspect=TASK_ID", "one task's whole story"),
        ),
        (
            ("tasks.path=FILE", "tasks.jsonl, or a source file that is adapted "
                                "on the fly"), ("tasks.limit=N", "the first N tasks"),
            ("rollouts_per_task=K", "replies to each task"),
            ("retry=given_up", "play rows once more that are given up"), ("concurrency=N", "rows in flight"), _RUN,
            ("policy.base_url=URL", "where an external model is; judge.base_url for the judge"),
            ("policy.model=NAME", "the name the server serves it under"),
            ("policy.api_key_env=VARIABLE", "the variable that holds the key, never the key"),
            ("policy.sampling.temperature=T", "also top_p, max_response_tokens, seed, …"),
            ("judge.extra_body={…}", "fields of every call; also omit, response_format, max_tokens_field, query, "
                                     "served_as"),
            _SERVICES, _OFFLINE,
            _DEADLINE, ("shard=i/n", "one part of the tasks; `gavel merge` puts the parts together"), *_EXPORT,
            ("judge_folder=DIR", "ask the managed judges that another job serves from there"),
            _SLURM, ("shards=N", "with cluster=slurm: so many parts as an array, and a job that merges them"),
            _TRUST, _DRY,
        ),
    ),
    Verb(
        "regrade", "Grade the stored transcripts of a run again; the policy is "
                   "not asked.", "gavel.launch.commands.regrade", "RegradeConfig",
        ("judge", "experiment"),
        (
            ("runs/first", "grade the rows that have no grade yet, into the run itself"),
            (
                "runs/first only=all into=runs/first-other judge=external judge.base_url=http://127.0.0.1:8001/v1 "
                "judge.model=other",
                "grade every row with another judge, into a child run",
            ),
        ),
        (
            _RUN, ("only=ungraded|all", "which transcripts; all needs into"), ("into=DIR", "the child run"),
            ("rubrics.NAME.profile=PROFILE", "another rubric"), ("concurrency=N", "rows in flight"), _DEADLINE, _TRUST, _DRY,  # noqa: E501
        ),
    ),
    Verb(
        "merge", "Put the shards of one run together into the "
                 "whole run.", "gavel.launch.commands.merge", "MergeConfig", (),
        (("runs/part-1 runs/part-2 into=runs/whole", "two parts that `gavel rollout … shard=1/2` and `… "
                                                     "shard=2/2` wrote"),),
        (
            ("runs=[DIR,…]", "the shards; also the words after the verb"), ("into=DIR", "the whole run"),
            ("partial=true", "merge although shards are missing; they are named"),
        ),
        ("runs",),
    ),
    Verb(
        "rescore", "Apply another reward policy to the stored outcomes of a run; no model "
                   "is called.", "gavel.launch.commands.rescore",
        "RescoreConfig", ("reward", "experiment"),
        (
            ("runs/first reward.abstain=0.3", "tiered rewards with less for abstaining"),
            ("runs/first reward=omniscience "
             "into=runs/first-omniscience", "another reward policy, into a run folder you name"),
        ),
        (_RUN, ("into=DIR", "the child run"), ("reward.…", "the options of the reward policy"), _DRY),
    ),
    Verb(
        "report", "Write a run as one page to look at, as Markdown "
                  "or as CSV.", "gavel.launch.commands.report", "ReportConfig", (),
        (
            ("runs/demo", "runs/demo/report.html: pictures, every row, every judge prompt; a rollout writes it "
                          "by itself"),
            ("runs/demo format=csv out=rows.csv", "one line for each row"),
        ),
        (_RUN, ("format=html|md|csv", "what is written"), ("out=FILE", "where; the run folder if it is not given")),
    ),
    Verb(
        "export", "Show the figures of a stored run in Weights & Biases or MLflow; no text leaves the machine.",
        "gavel.launch.commands.export", "ExportRunConfig", (),
        (
            ("runs/demo export.wandb.project=gavel", "to W&B (needs the extra `wandb`)"),
            ("runs/demo export.mlflow.tracking_uri=http://127.0.0.1:5000", "to MLflow (needs the extra `mlflow`)"),
        ),
        (_RUN, *_EXPORT, ("export.timeout_s=S", "how long an export may take")),
    ),
    Verb(
        "verify", "Check that a run folder says what was written "
                  "into it.", "gavel.launch.commands.verify", "VerifyConfig", (),
        (("runs/demo", "digests of lines, rewards computed again, outcomes made again from stored replies; exit 2 "
                       "where one differs"),),
        (_RUN,),
    ),
    Verb(
        "view", "Look at a run in the browser, while it grows.", "gavel.launch.commands.view", "ViewConfig", (),
        (
            ("runs/demo", "serve it on a free port of this machine"),
            ("runs/train-1", "a training: its steps, the samples of each group side by side, what was lost"),
            ("runs/demo port=8420", "on a port of your choice, for a tunnel"),
        ),
        (_RUN, ("port=PORT", "0 picks a free one")),
    ),
    Verb(
        "label", "Let people label what a run's judge was asked, in the browser and blind to its verdicts.",
        "gavel.launch.commands.label", "LabelConfig", (),
        (
            ("runs/demo annotator=anna", "50 questions drawn at random, one a screen, by the keyboard"),
            ("runs/demo annotator=ben", "a second annotator gets the same questions"),
            ("runs/demo", "how the labels agree with one another and with the judge"),
            ("runs/demo annotator=anna draw=slices slice=domain sample=80", "as many of each domain"),
        ),
        (
            _RUN, ("annotator=NAME", "who labels; without it nothing is served"), ("sample=N", "how many; 50"),
            ("draw=random|slices|disagreements", "which; slices need slice=NAME, disagreements a panel or other=RUN"),
            ("binding=NAME", "whose questions, where a run has several"), ("port=PORT", "0 picks a free one"),
        ),
    ),
    Verb(
        "reproduce", "Compute figures that others published once more, from the replies and verdicts that they stored.",
        "gavel.launch.commands.reproduce", "ReproduceConfig", (),
        (
            ("all", "every figure beside the published one, with its source"),
            ("judgebench data=published", "one study, from copies in a folder: published/OWNER/NAME/PATH"),
        ),
        (
            ("name=NAME", "which study; also the first word"), ("data=DIR", "a folder with copies, tried first"),
            _OFFLINE,
        ),
        ("name",),
    ),
    Verb(
        "serve", "Serve environments over HTTP: send a task and a reply, get "
                 "its grade.", "gavel.launch.commands.serve", "ServeConfig",
        ("env", "policy", "judge", "reward", "experiment"),
        (
            (
                "env=abstention judge=external judge.base_url=http://127.0.0.1:8000/v1 judge.model=my-judge",
                "one environment, at http://127.0.0.1:9400/v1/abstention/grade",
            ),
            (
                "env=abstention also.following=env=instruction_following judge=qwen3_32b",
                "two at one address, over one judge that is served here",
            ),
            (
                "experiment=demo http.host=0.0.0.0 http.api_key_env=GAVEL_KEY",
                "for other machines: callers send the key that the variable GAVEL_KEY holds",
            ),
        ),
        (
            ("http.port=PORT", "where it listens; 0 picks a "
                               "free one"), ("http.host=HOST", "127.0.0.1 unless it is set"),
            ("http.api_key_env=VARIABLE", "the variable that holds the key, never the key"),
            ("http.max_in_flight=N", "items in work at once; also max_batch, max_body_mib, deadline, "
                                     "body_timeout, grace"),
            ("gym.play=true", "play NeMo Gym's rows, too, asking the policy of this config (docs/nemo_gym.md)"),
            ("name=NAME", "the name in the paths"), ("also.NAME='WORDS'", "a further environment: env=…, reward=…, "
                                                                          "rubrics.…"),
            ("run.dir=DIR", "where the logs of servers go"), _SERVICES, _OFFLINE, _DRY,
        ),
    ),
    Verb(
        "compare", "Compare finished runs, paired by task, with intervals; the first one is "
                   "the base.", "gavel.launch.commands.compare",
        "CompareConfig", (),
        (
            ("runs/bench runs/bench-omniscience", "two reward policies on the same replies"),
            ("runs/a runs/b runs/c out=compared", "three runs, and the table as CSV, Markdown and JSON, with "
                                                  "a picture"),
            ("runs/sweep out=compared", "the points of a sweep; trainings by their last steps and curves, seeds "
                                        "taken together"),
        ),
        (
            ("out=DIR", "write the tables and the "
                        "pictures there"), ("window=N", "trainings: so many steps at each end"),
            ("draws=N", "bootstrap draws"), ("seed=N", "of the bootstrap"),
        ),
        ("runs",),
    ),
    Verb(
        "duel", "Let a judge say whose replies are better, of two runs or more, each two in both orders.",
        "gavel.launch.commands.duel", "DuelConfig", ("env", "judge", "experiment"),
        (
            ("runs/a runs/b rubrics.better.file=better.yaml judge=smollm2 run.dir=runs/duel",
             "win rate, ties, flips by place, strengths"),
            ("a.jsonl b.jsonl rubrics.better.file=better.yaml judge=smollm2", "files of {id, prompt, reply}"),
        ),
        (
            ("rubrics.NAME.file=FILE", "a rubric of pairs (docs/own_grading.md)"),
            ("run.dir=DIR", "the folder of the verdicts; the same words go on there"),
            ("concurrency=N", "pairs in work"), ("draws=N", "bootstrap draws; seed=N"), _SERVICES, _OFFLINE, _DRY,
        ),
        ("runs",),
    ),
    Verb(
        "probe", "Ask each judge known answers and known attacks; show which it gets right, and whether it qualifies.",
        "gavel.launch.commands.probe", "ProbeConfig",
        ("env", "judge", "experiment"),
        (
            ("experiment=demo", "how good the demo's tiny judge is (it is not)"),
            ("env=abstention judge=external judge.base_url=http://127.0.0.1:8000/v1 "
             "judge.model=my-judge", "a judge you serve"),
        ),
        (_RUN, ("concurrency=N", "questions in flight"), _SERVICES, _OFFLINE, _DRY),
    ),
    Verb(
        "calibrate", "Measure how well each judge agrees with labelled "
                     "answers.", "gavel.launch.commands.calibrate", "CalibrateConfig",
        ("env", "judge", "experiment"),
        (
            ("env=abstention judge=qwen3_32b", "on the 176 answers we ship"),
            (
                "env=abstention judge=external judge.base_url=http://127.0.0.1:8000/v1 judge.model=my-judge "
                "labelled=mine.jsonl "
                "repeats=3",
                "on answers you labelled, each judged three times for the flip rate",
            ),
            ("runs/vera env=vera_mh upstream=VERA-MH", "compare a finished run with upstream's own code in that "
                                                       "checkout"),
        ),
        (
            ("labelled=FILE", "JSONL: the rubric's slots and `label` in each row"), ("repeats=N", "calls per answer"),
            ("upstream=DIR", "compare the run (the first word, or run=DIR) with this checkout; upstream_python=PYTHON"),
            ("limit=N", "the first N answers; no "
                        "certificate then"), ("certificates=DIR", "the folder of certificates"), _RUN,
            ("concurrency=N", "questions in flight"), _SERVICES, _OFFLINE, _DRY,
        ),
    ),
    Verb(
        "judge", "Serve the managed judge in the foreground, "
                 "until Ctrl-C.", "gavel.launch.commands.judge", "JudgeConfig",
        ("judge", "experiment"),
        (
            ("judge=smollm2", "a tiny model on the CPU"),
            ("judge=qwen3_32b judge.gpus=1 judge.port=9100", "Qwen3-32B on one GPU, at port 9100"),
        ),
        (
            ("judge.port=PORT", "0 picks a free one; 1200 to 8999 belong to "
                                "NeMo-RL and Ray"), ("judge.gpus=N", "how many GPUs"),
            ("run.dir=DIR", "where the server's log goes"), _DRY,
        ),
    ),
    Verb(
        "train", "Check everything, write a run folder, and start NeMo-RL here or on Slurm, with "
                 "its judge.", "gavel.launch.commands.train",
        "TrainConfig", ("env", "judge", "reward", "failure", "trainer", "cluster", "experiment"),
        (
            ("experiment=abstention_qwen3_1p7b cluster=slurm "
             "dry_run=true", "every file and command, and what was found wrong"),
            ("trainer=cpu_smoke", "no GPU: a few real steps of a tiny model on the CPU, with TRL"),
            ("experiment=debug_single_gpu trainer.nemo_rl_root=/path/to/RL", "one GPU, 8 tasks, 2 steps"),
            ("-m experiment=reward_ablation reward.abstain=0.3,0.5,0.7 "
             "seed=1,2", "a sweep: six runs that share one judge"),
        ),
        (
            _RUN, ("trainer.nemo_rl_root=DIR", "your checkout of NVIDIA-NeMo/RL"), ("trainer.model=NAME", "the policy"),
            ("trainer.overrides.…", "any other key of NeMo-RL, such as trainer.overrides.grpo.max_num_epochs=1"),
            ("tasks.path=FILE", "the tasks; validation.path=FILE for validation"),
            ("envs.NAME.weight=X", "several environments, each with env@envs.NAME=CHOICE envs.NAME.tasks.path=FILE"),
            ("placement.mode=MODE", "external, same_node, het (its own part of a Slurm job), shared (one judge for "
                                    "many runs)"),
            ("cluster.nodes=N", "also gpus_per_node, account, partition, time, container, …"),
            ("qualification.required=false", "start with a judge that is not certified; recorded"), _SERVICES, _DRY,
        ),
    ),
    Verb(
        "doctor", "Say whether this machine can train: the checkout of NeMo-RL, judges, certificates, disk, Slurm, "
                  "versions.",
        "gavel.launch.commands.doctor", "TrainConfig", ("env", "judge", "reward", "failure", "trainer", "cluster", "experiment"),  # noqa: E501
        (
            ("trainer.nemo_rl_root=/path/to/RL", "the checkout, with a toy group through its own code"),
            ("experiment=abstention_qwen3_1p7b cluster=slurm", "what a training would need"),
        ),
        (
            ("trainer.nemo_rl_root=DIR", "your checkout of "
                                         "NVIDIA-NeMo/RL"), ("trainer.python=FILE", "the interpreter that has it"),
            ("tasks.path=FILE", "tasks are looked at where they are named"), _SERVICES,
        ),
    ),
    Verb(
        "status", "Say how a training run or a sweep goes: queue, judge, step, ungraded share, "
                  "last lines.", "gavel.launch.commands.status",
        "StatusConfig", (),
        (("runs/first", "one run"), ("runs/sweep", "every point of a sweep")),
        (_RUN, ("lines=N", "how many lines of the log")),
    ),
    Verb(
        "list", "Say what can be chosen: environments, rewards, rubrics, models, sources, experiments, trainers.",
        "gavel.launch.commands.list", "ListConfig", (),
        (("", "all of it"), ("rewards", "one kind"), ("format=json", "for a program")),
        (("what=KIND", "one kind; also the first word after the verb"), ("format=text|json", "how it is written")),
        ("what",),
    ),
    Verb(
        "schema", "Print the JSON Schema of a task's row.", "gavel.launch.commands.schema", "TaskSchemaConfig", (),
        (("abstention", "what a line of a tasks.jsonl for this "
                        "environment must be"), ("vera_mh out=task.schema.json", "into a file")),
        (("what=ENV", "the environment; also the first word after "
                      "the verb"), ("out=FILE", "where; printed if it is not given")),
        ("what",),
    ),
    Verb(
        "new", "Write a small working environment, or a rubric of your own, to "
               "begin with.", "gavel.launch.commands.new",
        "NewConfig", (),
        (("env two_tries", "into the folder two_tries"), ("env two_tries "
                                                          "into=work/two-tries", "into a folder you name"),
         ("rubric helpful", "a prompt, its labels, known answers and a test, into the folder helpful"),
         ("pair better", "the same for a rubric that compares two replies")),
        (("into=DIR", "a new or empty folder; ./NAME if it is not given"),),
        ("what", "name"),
    ),
)  # fmt: skip

VERBS = {verb.name: verb for verb in _TABLE}
"""Every verb by name, in the order in which they are used."""


_MEANT = {
    "inspect": "gavel rollout RUN inspect=TASK",
    "run": "gavel rollout",
    "eval": "gavel rollout",
    "evaluate": "gavel rollout",
    "init": "gavel new",
}
"""What other programs call what a command of ours does, where the nearest name would mislead."""


def find_verb(name: str) -> Verb:
    """Return a verb by name.

    Raises:
        ConfigError: there is no such verb; names the nearest.
    """
    if name in VERBS:
        return VERBS[name]
    near = [_MEANT[name]] if name in _MEANT else [f"gavel {verb}" for verb in find_nearest(name, VERBS)]
    raise ConfigError(
        "there is no such verb",
        found=name,
        allowed=", ".join(VERBS),
        remedy=f"did you mean `{near[0]}`?" if near else "see `gavel`",
    )
