"""Rows played and graded: the session, its limits and its figures."""
