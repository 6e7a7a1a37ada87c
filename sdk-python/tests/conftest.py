"""Shortens the client's pauses between retries, because the tests with faults retry hundreds of times."""

from __future__ import annotations

import pytest

#: The shortened pause, seconds.
SHORT = 0.01
PAUSES = [
    "sandbar._retry.FIRST_PAUSE_SEC",
    "sandbar._retry.REOPEN_SEC",
    *(
        f"sandbar.{client}.{name}"
        for client in ("_async", "_sync")
        for name in ("activity.POLL_SEC", "job_stdin.IDLE_SEC", "terminal_connection.REOPEN_SEC")
    ),
]


@pytest.fixture(autouse=True)
def short_pauses(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the pauses in all tests except the live tests, which use the same pauses as users."""
    if request.node.get_closest_marker("live") is None:
        for name in PAUSES:
            monkeypatch.setattr(name, SHORT)
