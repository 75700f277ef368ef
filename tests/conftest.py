"""Fixtures for all tests."""

pytest_plugins = ["tests.support.vllm", "tests.support.slurm"]
