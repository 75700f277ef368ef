"""The ``gavel`` command, in rooms from ``config`` up to ``cli``; ``docs/architecture.md`` says what is in which."""
