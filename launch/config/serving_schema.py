"""The config of ``gavel serve`` below the verb: where it listens, for whom, and within what bounds."""

from __future__ import annotations

from gavel.models.codec import FieldError, record


@record
class HttpConfig:
    """``api_key_env`` names the variable that holds the key callers must send; None asks for none, which is refused for
    a ``host`` beyond the loopback unless ``without_key``.

    Seconds: ``deadline`` for one transition, ``body_timeout`` for a body to arrive or to be taken, ``idle_timeout`` for
    a connection that says nothing, ``grace`` for what is in flight when the service is told to end. ``max_in_flight``
    counts items, ``max_batch`` those of one request.
    """

    host: str = "127.0.0.1"
    port: int = 9400
    api_key_env: str | None = None
    without_key: bool = False
    max_body_mib: float = 8.0
    max_in_flight: int = 512
    max_batch: int = 256
    body_timeout: float = 30.0
    idle_timeout: float = 75.0
    deadline: float = 900.0
    grace: float = 30.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise FieldError("port", self.port, "0 to 65535; 0 picks a free one")
        if not self.max_body_mib >= 0.001:
            raise FieldError("max_body_mib", self.max_body_mib, "at least 0.001")
        for name in ("max_in_flight", "max_batch", "body_timeout", "idle_timeout", "deadline"):
            if not getattr(self, name) > 0:
                raise FieldError(name, getattr(self, name), "more than 0")
        if self.max_batch > self.max_in_flight:
            raise FieldError("max_batch", self.max_batch, f"at most max_in_flight, which is {self.max_in_flight}")
        if not self.grace >= 0:
            raise FieldError("grace", self.grace, "0 or more seconds")


@record
class GymConfig:
    """What the service does for NeMo Gym besides grading rows.

    ``play``: it plays them, asking the policy of the config.
    """

    play: bool = False
