"""What is closed at the end of a ``with`` or ``async with``, for the classes that have a ``close``."""

from __future__ import annotations

from typing import Self


class Closing:
    """Closed at the end of ``with``."""

    def close(self) -> None:
        """Give back what is held."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClosing:
    """Closed at the end of ``async with``."""

    async def close(self) -> None:
        """Give back what is held."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
