"""Paired comparison of runs and of trainings."""
