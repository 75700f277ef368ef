"""What an environment's parts are called in a Gym config: the resources server, the agent that plays rows, the hop
before it.
"""

from __future__ import annotations


def make_resources_server_name(env: str) -> str:
    """Return the name of the resources server."""
    return f"gavel_{env}"


def make_agent_name(env: str) -> str:
    """Return the name of the agent: what a row's ``agent_ref`` and ``gym eval run --agent`` say."""
    return f"gavel_{env}_agent"


def make_environment_server_name(env: str) -> str:
    """Return the name of the environment server, to which Gym's collector sends the rows of the agent."""
    return f"gavel_{env}_environment_server"
