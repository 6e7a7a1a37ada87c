"""Tests which calls are repeated and when, and that a repeated call has its effect only once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import sandbar
from sandbar._retry import FIRST_PAUSE_SEC, MAX_RETRY_AFTER_SEC, ReopenSchedule, RetrySchedule

from .clients import Kind, both, run
from .fault_server import Answer, FaultServer, content, raw, refusal, reset, status

OK = status(200, {"id": "1"})


@both
@pytest.mark.parametrize(
    "failure",
    [
        reset,
        raw(b""),
        content(b'{"id": "1"}', sent=5),
        refusal(503, "shutting_down", retry_after="0"),
        refusal(429, "rate_limited", retry_after="0"),
        refusal(503, "a_new_code"),
        content(b"<html>", code=503),
    ],
    ids=["reset", "closed", "half a body", "503", "429", "503 with an unknown code", "503 of a proxy"],
)
def test_a_temporary_failure_is_retried(kind: Kind, failure: Answer) -> None:
    with FaultServer([failure, failure, OK]) as server:
        assert run(kind, server.url, lambda client: client.account.get()) == {"id": "1"}
    assert len(server.requests) == 3


@both
@pytest.mark.parametrize("code", [400, 404, 409, 500, 502, 507])
def test_a_refusal_is_not_repeated(kind: Kind, code: int) -> None:
    with FaultServer([refusal(code, "some_code")]) as server, pytest.raises(sandbar.SandbarError):
        run(kind, server.url, lambda client: client.account.get())
    assert len(server.requests) == 1


@both
def test_retry_after_is_awaited(kind: Kind) -> None:
    with FaultServer([refusal(429, "rate_limited", retry_after="1"), OK]) as server:
        began = time.monotonic()
        run(kind, server.url, lambda client: client.account.get())
    assert time.monotonic() - began >= 1


@both
def test_a_long_retry_after_ends_the_retries_at_once(kind: Kind) -> None:
    answers = [refusal(429, "rate_limited", retry_after="21")]
    with FaultServer(answers) as server, pytest.raises(sandbar.RateLimitedError) as caught:
        run(kind, server.url, lambda client: client.account.get())
    assert caught.value.retry_after_sec == 21
    assert len(server.requests) == 1


@both
def test_the_timeout_includes_the_retries(kind: Kind) -> None:
    # The second pause is longer than the timeout, so the timeout ends in this pause and not in a request.
    answers = [refusal(503, "shutting_down"), refusal(503, "shutting_down", retry_after="10")]
    with FaultServer(answers) as server, pytest.raises(sandbar.TimeoutError) as caught:
        run(kind, server.url, lambda client: client.account.get(timeout=1))
    assert isinstance(caught.value.__cause__, sandbar.ShuttingDownError)
    assert len(server.requests) == 2


@both
def test_without_retries_the_first_failure_is_raised(kind: Kind) -> None:
    with FaultServer([refusal(503, "shutting_down")]) as server, pytest.raises(sandbar.ShuttingDownError):
        run(kind, server.url, lambda client: client.account.get(), retry_for_sec=0)
    assert len(server.requests) == 1


def test_the_pause_doubles_with_a_random_part_and_ends_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    # Restore the real pause, which a fixture in conftest.py shortens for the tests.
    monkeypatch.setattr("sandbar._retry.FIRST_PAUSE_SEC", FIRST_PAUSE_SEC)
    schedule = RetrySchedule(10, is_repeatable=True)
    failure = sandbar.ConnectionError("broken")
    pauses = []
    while (pause := schedule.pause_after(failure, has_contact=True)) is not None:
        pauses.append(pause)
        now += pause
    assert all(0.1 * 2**n <= pause <= 0.2 * 2**n for n, pause in enumerate(pauses[:5]))
    assert now <= 110


@pytest.mark.parametrize(("after", "is_repeated"), [(MAX_RETRY_AFTER_SEC, True), (MAX_RETRY_AFTER_SEC + 0.1, False)])
def test_retry_after_is_honoured_up_to_its_limit(after: float, is_repeated: bool) -> None:
    error = sandbar.RateLimitedError("later", status=429, code="rate_limited", retry_after_sec=after)
    pause = RetrySchedule(60, is_repeatable=False).pause_after(error, has_contact=True)
    assert (pause is not None and pause >= after) if is_repeated else pause is None


def test_a_client_without_contact_gives_up_after_three_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    schedule = RetrySchedule(60, is_repeatable=False)
    failure = sandbar.ConnectionError("refused", is_unsent=True)
    while (pause := schedule.pause_after(failure, has_contact=False)) is not None:
        now += pause
    assert now <= 103


Call = Callable[[Any], Any]
CREATES: list[tuple[str, Call]] = [
    ("machine", lambda client: client.machines.create(vcpus=2)),
    ("volume", lambda client: client.volumes.create(size_gb=5)),
    ("snapshot", lambda client: client.snapshots.create("m", name="s")),
]


@both
@pytest.mark.parametrize("call", [call for _, call in CREATES], ids=[name for name, _ in CREATES])
def test_every_create_is_repeated_with_the_same_key(kind: Kind, call: Call) -> None:
    with FaultServer([reset, refusal(503, "shutting_down"), status(201, {"id": "1"})]) as server:
        assert run(kind, server.url, call) == {"id": "1"}
    keys = {request.headers["idempotency-key"] for request in server.requests}
    assert len(keys) == 1
    assert len({request.body for request in server.requests}) == 1
    with FaultServer([status(201, {})]) as second:
        run(kind, second.url, call)
    assert second.requests[0].headers["idempotency-key"] not in keys


@both
def test_the_caller_chooses_the_key(kind: Kind) -> None:
    with FaultServer([status(201, {})]) as server:
        run(kind, server.url, lambda client: client.machines.create(idempotency_key="mine"))
    assert server.requests[0].headers["idempotency-key"] == "mine"


@both
def test_an_exec_is_repeated_with_the_same_id(kind: Kind) -> None:
    with FaultServer([reset, status(201, {"id": "1"})]) as server:
        run(kind, server.url, lambda client: client.execs.start("m", command="true"))
    first, second = (request.json for request in server.requests)
    assert first == second
    assert first["exec_id"]


@both
def test_an_exec_whose_answer_was_lost_is_found(kind: Kind) -> None:
    with FaultServer([reset, refusal(409, "conflict"), status(200, {"id": "found"})]) as server:
        job = run(kind, server.url, lambda client: client.execs.start("m", command="true", exec_id="e"))
    assert job == {"id": "found"}
    assert [(request.method, request.target) for request in server.requests][-1] == ("GET", "/v1/machines/m/execs/e")


@both
def test_a_conflict_that_no_earlier_attempt_caused_is_raised(kind: Kind) -> None:
    answers = [reset, refusal(409, "conflict"), refusal(404, "not_found")]
    with FaultServer(answers) as server, pytest.raises(sandbar.ConflictError):
        run(kind, server.url, lambda client: client.execs.start("m", command="true"))
    with FaultServer([refusal(409, "conflict")]) as server, pytest.raises(sandbar.ConflictError):
        run(kind, server.url, lambda client: client.execs.start("m", command="true"))
    assert len(server.requests) == 1


@both
@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.api_keys.create(name="k", scope="read"),
        lambda client: client.execs.signal("m", "e", "INT"),
        lambda client: client.request("POST", "/v1/anything"),
    ],
    ids=["api key", "signal", "request"],
)
def test_a_call_that_would_act_twice_is_not_repeated_after_a_lost_answer(kind: Kind, call: Call) -> None:
    with FaultServer([reset]) as server, pytest.raises(sandbar.ConnectionError):
        run(kind, server.url, call)
    assert len(server.requests) == 1


@both
def test_a_destroy_whose_answer_was_lost_returns_the_destroyed_machine(kind: Kind) -> None:
    destroyed = {"id": "m", "state": "destroyed"}
    with FaultServer([reset, refusal(404, "not_found"), status(200, destroyed)]) as server:
        assert run(kind, server.url, lambda client: client.machines.destroy("m")) == destroyed
    with FaultServer([refusal(404, "not_found")]) as server, pytest.raises(sandbar.NotFoundError):
        run(kind, server.url, lambda client: client.machines.destroy("m"))


@both
def test_a_delete_whose_answer_was_lost_succeeds(kind: Kind) -> None:
    with FaultServer([reset, refusal(404, "not_found")]) as server:
        assert run(kind, server.url, lambda client: client.volumes.delete("v")) is None
    with FaultServer([refusal(404, "not_found")]) as server, pytest.raises(sandbar.NotFoundError):
        run(kind, server.url, lambda client: client.volumes.delete("v"))


@both
def test_every_request_has_the_key_and_the_user_agent(kind: Kind) -> None:
    with FaultServer([OK, OK]) as server:
        run(kind, server.url, lambda client: client.account.get(), user_agent="tool/1")
        run(kind, server.url, lambda client: client.account.get())
    first, second = (request.headers for request in server.requests)
    assert first["authorization"] == "Bearer sbr_test"
    assert first["user-agent"].startswith(f"tool/1 sandbar-sdk-python/{sandbar.__version__} python/3.")
    assert second["user-agent"].startswith(f"sandbar-sdk-python/{sandbar.__version__} ")


@both
def test_an_id_cannot_reach_another_path(kind: Kind) -> None:
    with FaultServer([OK]) as server:
        run(kind, server.url, lambda client: client.machines.get("../volumes/x?y#z"))
    assert server.requests[0].target == "/v1/machines/..%2Fvolumes%2Fx%3Fy%23z"


@both
def test_a_query_leaves_out_what_was_not_given(kind: Kind) -> None:
    with FaultServer([status(200, {"machines": []}), OK]) as server:
        run(kind, server.url, lambda client: client.machines.list(name="a b", metadata={"k/1": "v&w"}))
        run(kind, server.url, lambda client: client.machines.destroy("m", preserve_storage=True))
    assert server.requests[0].target == "/v1/machines?name=a+b&metadata.k%2F1=v%26w"
    assert server.requests[1].target == "/v1/machines/m?preserve_storage=true"


def test_a_stream_that_lived_may_be_opened_again_although_nothing_came(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    broken = sandbar.ConnectionError("broken")
    schedule = ReopenSchedule(60)
    for _ in range(5):
        assert schedule.pause_after(broken) is not None
        schedule.note_open()
        # The connection stays open for this time, but only heartbeats come.
        now += 300
    # The next connections close at once.
    assert schedule.pause_after(broken) is not None
    now += 59.995
    schedule.note_open()
    assert schedule.pause_after(broken) is None
