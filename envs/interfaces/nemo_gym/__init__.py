"""The environments as a resources server, and as a gateway, of NeMo Gym 0.7 (its wire contract, not its code)."""

from __future__ import annotations

from pathlib import Path

SEARCH_DIR = Path(__file__).parent / "search_dir"
"""The folder for ``gym … --search-dir``: resources servers that Gym starts itself."""

__all__ = ["SEARCH_DIR"]
