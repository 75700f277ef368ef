"""A run's figures for W&B and MLflow, each in a process of its own."""
