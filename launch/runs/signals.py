"""SIGINT and SIGTERM: every verb ends on either, however it was started.

A shell starts the background jobs of a script with SIGINT ignored, and then neither Python nor ``asyncio`` listens to
it; both signals are therefore taken over here, and SIGTERM does not go by way of SIGINT.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_STOPS = (signal.SIGINT, signal.SIGTERM)
_PATIENCE_S = 1.0
"""Seconds that a busy event loop has to take note of a signal, before it is broken off."""


@contextlib.contextmanager
def interrupt_by_signals() -> Iterator[None]:
    """Let SIGINT and SIGTERM raise ``KeyboardInterrupt`` in the block."""
    with _handle_signals(_raise_interrupt):
        yield


@contextlib.contextmanager
def cancel_by_signals() -> Iterator[None]:
    """Let SIGINT and SIGTERM cancel the current task; one that finds the event loop held up, or a second one, breaks it
    off.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    asked = threading.Event()
    noted = threading.Event()

    def cancel_task() -> None:
        noted.set()
        task.cancel()

    def break_off() -> None:
        if not noted.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def handle_stop(_number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        loop.call_soon_threadsafe(cancel_task)
        late = threading.Timer(_PATIENCE_S, break_off)
        late.daemon = True
        late.start()

    with _handle_signals(handle_stop):
        yield


def ignore_signals() -> None:
    """Let SIGINT and SIGTERM do nothing from now on, also after the blocks around this call."""
    for number in _STOPS:
        signal.signal(number, signal.SIG_IGN)


def _raise_interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _handle_signals(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    before = [(number, signal.signal(number, handler)) for number in _STOPS]
    try:
        yield
    finally:
        for number, old in before:
            if signal.getsignal(number) is handler:  # else somebody took over, who listens until the event loop closes
                signal.signal(number, old)
