"""Registration: NeMo-RL looks an environment up in two tables, and its own function fills only one of them.

``environments/utils.py`` and ``distributed/ray_actor_environment_registry.py`` of NVIDIA-NeMo/RL at
7ea279abfbeb698b092856d0dab61e7cf39bc909. Both must be filled on the driver before environments are made, which is
before dataset modules are imported; so only a wrapper of the stock script can do it.
"""

from __future__ import annotations

from collections.abc import Iterable

from gavel.envs.interfaces.nemo_rl.config import PREFIX
from gavel.models.errors import ConfigError

ACTOR = "gavel.envs.interfaces.nemo_rl.ray_actor.GavelActor"
DATASET = "gavel.envs.interfaces.nemo_rl.dataset.GavelTasks"


def register_environments(names: Iterable[str]) -> None:
    """Make environments known to NeMo-RL by name; the actor runs in the driver's own interpreter. Doing it twice is
    allowed.

    Raises:
        ConfigError: a name that is not ours to give, or that something else has taken.
    """
    from nemo_rl.distributed.ray_actor_environment_registry import ACTOR_ENVIRONMENT_REGISTRY
    from nemo_rl.distributed.virtual_cluster import PY_EXECUTABLES
    from nemo_rl.environments.utils import ENV_REGISTRY, register_env

    ACTOR_ENVIRONMENT_REGISTRY[ACTOR] = PY_EXECUTABLES.SYSTEM
    for name in names:
        if not name.startswith(PREFIX):
            raise ConfigError(
                "no environment of gavel has this name", field=f"env.{name}", found=name, allowed=f"{PREFIX}…"
            )
        taken = ENV_REGISTRY.get(name)
        if taken is None:
            register_env(name, ACTOR)
        elif taken["actor_class_fqn"] != ACTOR:
            raise ConfigError("this environment's name is taken", field=f"env.{name}", found=taken["actor_class_fqn"])
