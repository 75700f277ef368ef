"""The files of a run; see ``gavel.models.files``."""

from gavel.models.files import JsonLines, PersistenceError, read_lines, write_whole

__all__ = ["JsonLines", "PersistenceError", "read_lines", "write_whole"]
