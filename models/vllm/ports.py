"""Ports for servers of ours: free, and outside the range that NeMo-RL and Ray use."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Collection

from gavel.models.errors import ConfigError
from gavel.models.service import RESERVED_PORTS
from gavel.models.vllm.arguments import LOOPBACK

_LOWEST = RESERVED_PORTS.stop
_TRIES = 50


def pick_port(name: str, port: int = 0, *, taken: Collection[int] = ()) -> int:
    """Return a port a server can listen on.

    Args:
        name: the service's, for the error.
        port: the one configured; 0 for any.
        taken: ports already given away, though not listened on yet.

    Raises:
        ConfigError: the port asked for is in use or not ours to use.
    """
    if port:
        if port in taken:
            raise _make_port_error(name, port, "another service of this config uses it")
        _try_port(name, port)
        return port
    for candidate in _list_candidates():
        if candidate not in RESERVED_PORTS and candidate not in taken:
            return candidate
    raise ConfigError("no free port was found", field=f"{name}.port", remedy=f"set {name}.port")


def _list_candidates() -> list[int]:
    """Ask the system for free ports, and some at random in case its own range lies in the reserved one."""
    found = []
    for asked in [0] * 5 + random.sample(range(_LOWEST, 65536), _TRIES):
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, asked))
            except OSError:
                continue
            found.append(probe.getsockname()[1])
    return found


def _try_port(name: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: old connections may linger
        try:
            probe.bind((LOOPBACK, port))
        except OSError as failed:
            reason = (
                "it is in use"
                if failed.errno == errno.EADDRINUSE
                else (failed.strerror or "refused by the system").lower()
            )
            raise _make_port_error(name, port, reason) from None


def _make_port_error(name: str, port: int, reason: str) -> ConfigError:
    return ConfigError(
        f"port {port} cannot be used: {reason}",
        field=f"{name}.port",
        found=str(port),
        allowed="a free port from 9000 to 65535, or 0 for any",
        remedy=f"set {name}.port=0, or end the process that listens on {port}",
    )
