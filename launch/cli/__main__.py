"""``python -m gavel.launch.cli``."""

from gavel.launch.cli.command_line import main

if __name__ == "__main__":
    raise SystemExit(main())
