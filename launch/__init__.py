"""The ``gavel`` command: one module per verb, config schemas, the run folder."""
