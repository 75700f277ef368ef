"""Gavel: judge-graded training environments, composed by Hydra, for NVIDIA NeMo-RL."""

__version__ = "0.1.0"
