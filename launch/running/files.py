"""The files of a run; see ``gavel.models.files``."""

from gavel.models.files import (
    PRIVATE_FOLDER,
    AlteredLine,
    JsonLines,
    PersistenceError,
    is_altered,
    read_document,
    read_lines,
    write_whole,
)

__all__ = [
    "PRIVATE_FOLDER", "AlteredLine", "JsonLines", "PersistenceError", "is_altered", "read_document", "read_lines", "write_whole",
]  # fmt: skip
