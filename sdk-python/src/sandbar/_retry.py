"""Decides which failed requests are sent again, and after which pause."""

from __future__ import annotations

import random
import time

from .errors import ConnectionError, SandbarError, TimeoutError

#: The pause before the first retry, seconds. It doubles with each retry up to the maximum; a random part is added.
FIRST_PAUSE_SEC = 0.1
MAX_PAUSE_SEC = 5.0
#: A longer `Retry-After` ends the retries at once, seconds.
MAX_RETRY_AFTER_SEC = 20.0
#: How long a client that never got an answer tries to connect, seconds. A restart of the service takes less time. A
#: user with a wrong address does not have to wait long for the error.
FIRST_CONTACT_SEC = 3.0
#: The pause before a broken stream is opened again, seconds.
REOPEN_SEC = 0.25
#: A connection that stayed open this long, in seconds, counts as successful even if it carried only heartbeats.
STABLE_SEC = 5.0


class RetrySchedule:
    """The retries of one request. `retry_for_sec` counts from the first failure; 0 means never."""

    def __init__(self, retry_for_sec: float, *, is_repeatable: bool) -> None:
        self._retry_for_sec = retry_for_sec
        self._is_repeatable = is_repeatable
        self._failed_first_at: float | None = None
        self._pause_sec = FIRST_PAUSE_SEC

    def pause_after(self, error: Exception, *, has_contact: bool) -> float | None:
        """Returns the seconds until the next attempt, or None if there should be no further attempt."""
        now = time.monotonic()
        if self._failed_first_at is None:
            self._failed_first_at = now
        if self._retry_for_sec <= 0 or not _is_transient(error, self._is_repeatable):
            return None
        is_unsent = isinstance(error, ConnectionError) and error.is_unsent
        limit_sec = (
            min(self._retry_for_sec, FIRST_CONTACT_SEC) if is_unsent and not has_contact else self._retry_for_sec
        )
        pause_sec = self._pause_sec * random.uniform(1, 2)
        self._pause_sec = min(self._pause_sec * 2, MAX_PAUSE_SEC)
        if isinstance(error, SandbarError) and error.retry_after_sec is not None:
            if error.retry_after_sec > MAX_RETRY_AFTER_SEC:
                return None
            # Add a random part, so that clients that were refused at the same time do not all retry at the same time.
            pause_sec = max(pause_sec, error.retry_after_sec * random.uniform(1, 1.1))
        return None if now + pause_sec > self._failed_first_at + limit_sec else pause_sec


class ReopenSchedule:
    """The retries of a stream that breaks. The time limit starts anew after data or a successful connection."""

    def __init__(self, retry_for_sec: float) -> None:
        self._retry_for_sec = retry_for_sec
        self._broken_since: float | None = None
        self._opened_at: float | None = None

    def note_open(self) -> None:
        self._opened_at = time.monotonic()

    def note_progress(self) -> None:
        self._broken_since = None

    def pause_after(self, error: Exception) -> float | None:
        """Returns the seconds until the stream should be opened again, or None when the time is over."""
        now = time.monotonic()
        if self._opened_at is not None and now - self._opened_at >= STABLE_SEC:
            self._broken_since = None
        self._opened_at = None
        if self._broken_since is None:
            self._broken_since = now
        if isinstance(error, TimeoutError) or now + REOPEN_SEC > self._broken_since + self._retry_for_sec:
            return None
        return REOPEN_SEC


def is_unavailable(error: Exception) -> bool:
    """Whether the service could not be reached or answered 503, so that the same request may succeed later."""
    return isinstance(error, ConnectionError) or (isinstance(error, SandbarError) and error.status == 503)


def is_undone(error: Exception, undone_codes: frozenset[str]) -> bool:
    """Whether the service has certainly not carried out the request that failed with this error."""
    if isinstance(error, ConnectionError):
        return error.is_unsent
    return isinstance(error, SandbarError) and error.code in undone_codes


def _is_transient(error: Exception, is_repeatable: bool) -> bool:
    if isinstance(error, SandbarError):
        return error.status in (429, 503)
    if isinstance(error, TimeoutError):
        return False
    return isinstance(error, ConnectionError) and (is_repeatable or error.is_unsent)
