"""The tests of faults retry at once: the pauses of the client are too long to be waited for hundreds of times."""

from __future__ import annotations

import pytest

#: Seconds.
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
    """The live tests keep the pauses that users have."""
    if request.node.get_closest_marker("live") is None:
        for name in PAUSES:
            monkeypatch.setattr(name, SHORT)
