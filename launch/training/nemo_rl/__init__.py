"""NeMo-RL as a trainer: its config, what is looked at before the start, and the wrapper that starts it."""
