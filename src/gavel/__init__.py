"""Gavel: judge-graded training environments, composed by Hydra, for NVIDIA NeMo-RL.

The names in ``__all__`` are the public API: they keep their meaning within a minor version, and ``CHANGELOG.md`` says what changed. All
else may move. Each is imported when it is first used, so that ``import gavel`` costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # checkers take the name for true, and `typing` costs more than all of this
if TYPE_CHECKING:
    from gavel.envs.instruction_following.checking import check_instruction as check_instruction
    from gavel.envs.interfaces.http.client import GavelClient as GavelClient
    from gavel.envs.interfaces.http.client import ServiceRefused as ServiceRefused
    from gavel.envs.interfaces.http.sync_client import SyncGavelClient as SyncGavelClient
    from gavel.envs.plugins import Plugin as Plugin
    from gavel.envs.registry import Entry as Entry
    from gavel.envs.registry import SourceEntry as SourceEntry
    from gavel.envs.types import Check as Check
    from gavel.envs.types import Environment as Environment
    from gavel.envs.types import EnvironmentInfo as EnvironmentInfo
    from gavel.envs.types import Finish as Finish
    from gavel.envs.types import Metric as Metric
    from gavel.envs.types import Observe as Observe
    from gavel.envs.types import Opening as Opening
    from gavel.envs.types import Outcome as Outcome
    from gavel.envs.types import Result as Result
    from gavel.envs.types import Reward as Reward
    from gavel.envs.types import RewardError as RewardError
    from gavel.envs.types import RewardPolicy as RewardPolicy
    from gavel.envs.types import Summary as Summary
    from gavel.envs.types import Task as Task
    from gavel.envs.types import TaskError as TaskError
    from gavel.envs.types import Transcript as Transcript
    from gavel.judges.types import Grade as Grade
    from gavel.judges.types import Judge as Judge
    from gavel.judges.types import JudgeFailure as JudgeFailure
    from gavel.judges.types import JudgeQuery as JudgeQuery
    from gavel.judges.types import Rubric as Rubric
    from gavel.launch.runs.stored_run import StoredRun as StoredRun
    from gavel.launch.runs.stored_run import load_run as load_run
    from gavel.launch.serving.grader import Grader as Grader
    from gavel.launch.serving.grader import grade as grade
    from gavel.models.codec import record as record
    from gavel.models.errors import ConfigError as ConfigError
    from gavel.models.errors import GavelError as GavelError
    from gavel.models.errors import InputError as InputError
    from gavel.models.errors import RecordError as RecordError
    from gavel.models.failures import Failure as Failure
    from gavel.models.failures import FailureKind as FailureKind
    from gavel.models.types import Message as Message
    from gavel.models.types import Receipt as Receipt
    from gavel.models.types import Reply as Reply

__version__ = "0.2.0"

_HOMES = {
    "gavel.envs.instruction_following.checking": ("check_instruction",),
    "gavel.envs.interfaces.http.client": ("GavelClient", "ServiceRefused"),
    "gavel.envs.interfaces.http.sync_client": ("SyncGavelClient",),
    "gavel.envs.plugins": ("Plugin",),
    "gavel.envs.registry": ("Entry", "SourceEntry"),
    "gavel.envs.types": (
        "Check", "Environment", "EnvironmentInfo", "Finish", "Metric", "Observe", "Opening", "Outcome", "Result", "Reward",
        "RewardError", "RewardPolicy", "Summary", "Task", "TaskError", "Transcript",
    ),
    "gavel.judges.types": ("Grade", "Judge", "JudgeFailure", "JudgeQuery", "Rubric"),
    "gavel.launch.runs.stored_run": ("StoredRun", "load_run"),
    "gavel.launch.serving.grader": ("Grader", "grade"),
    "gavel.models.codec": ("record",),
    "gavel.models.errors": ("ConfigError", "GavelError", "InputError", "RecordError"),
    "gavel.models.failures": ("Failure", "FailureKind"),
    "gavel.models.types": ("Message", "Receipt", "Reply"),
}  # fmt: skip
"""Where the public names live."""
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME_OF]

if not TYPE_CHECKING:  # a checker sees the imports above, and no name that is not there

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used."""
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        found = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
        return found

    def __dir__() -> list[str]:
        """Return the public names, and what was imported already."""
        return sorted({*globals(), *__all__})
