"""Figures that others published, computed again by this package's own code over the replies and verdicts they
stored.
"""
