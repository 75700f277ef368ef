"""The files of a run; see ``gavel.models.files``."""

from gavel.models.files import (
    PRIVATE_FOLDER,
    AlteredLine,
    JsonLines,
    PersistenceError,
    Tell,
    is_altered,
    open_own,
    parse_line,
    read_document,
    read_lines,
    read_places,
    refuse_fault,
    write_whole,
)

__all__ = [
    "PRIVATE_FOLDER", "AlteredLine", "JsonLines", "PersistenceError", "Tell", "is_altered", "open_own", "parse_line", "read_document",  # noqa: E501
    "read_lines", "read_places", "refuse_fault", "write_whole",
]  # fmt: skip
