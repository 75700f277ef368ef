"""The command ``gavel``; also ``python -m gavel.launch.cli``."""

from gavel.launch.cli.command_line import main

__all__ = ["main"]
