"""The time limit of a call, which covers all requests of the call."""

from __future__ import annotations

import time


class Deadline:
    """A moment `seconds` from now, or never."""

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = seconds
        self._at = None if seconds is None else time.monotonic() + seconds

    @property
    def is_set(self) -> bool:
        return self._at is not None

    @property
    def is_over(self) -> bool:
        return self._at is not None and time.monotonic() >= self._at

    def limit(self, seconds: float) -> float:
        """Returns `seconds`, or the time that is left if that is less. Never negative."""
        if self._at is None:
            return seconds
        return max(0.0, min(seconds, self._at - time.monotonic()))
