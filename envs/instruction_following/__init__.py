"""Instruction following: one reply, a list of instructions, in the languages of one table; checks in process, judges
for the rest.
"""

from __future__ import annotations

from gavel.envs.instruction_following.checking import check_instruction
from gavel.envs.instruction_following.instructions import LanguageUnsupported
from gavel.envs.instruction_following.instructions import list_supported_instructions as supported_instructions
from gavel.envs.types import TaskError

__all__ = ["LanguageUnsupported", "TaskError", "check_instruction", "supported_instructions"]
