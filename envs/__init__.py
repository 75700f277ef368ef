"""Environments: what is asked, when an episode ends, what its outcome is, and what reward that earns."""
