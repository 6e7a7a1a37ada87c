"""Tests that failures of the service and of the network raise the errors that the documentation promises."""

from __future__ import annotations

import builtins

import pytest

import sandbar
from sandbar._error_codes import ERROR_CLASSES

from .clients import Kind, both, run
from .fault_server import Answer, FaultServer, content, raw, refusal, reset, stall, status, trickle


def get(client: object) -> object:
    return client.account.get()  # type: ignore[attr-defined]


@both
@pytest.mark.parametrize("code", ERROR_CLASSES)
def test_every_code_of_the_table_raises_its_class(kind: Kind, code: str) -> None:
    expected = ERROR_CLASSES[code]
    # The class must not inherit from the class of another code.
    assert expected.__bases__ == (sandbar.SandbarError,)
    assert getattr(sandbar, expected.__name__) is expected
    with (
        FaultServer([refusal(418, code, x_request_id="r-1", retry_after="3")]) as server,
        pytest.raises(expected) as caught,
    ):
        run(kind, server.url, get)
    error = caught.value
    assert type(error) is expected
    assert (error.status, error.code, error.detail) == (418, code, f"the detail of {code}")
    assert (error.request_id, error.retry_after_sec) == ("r-1", 3)
    assert str(error) == f"{code}: the detail of {code}"


def test_the_names_of_the_classes_come_from_the_codes() -> None:
    names = {code: kind.__name__ for code, kind in ERROR_CLASSES.items()}
    assert names["quota_exceeded"] == "QuotaExceededError"
    assert names["unauthenticated"] == "UnauthenticatedError"
    assert names["internal_error"] == "InternalError"
    assert names["not_found"] == "NotFoundError"


@both
def test_an_unknown_code_is_a_sandbar_error_itself(kind: Kind) -> None:
    with FaultServer([refusal(409, "moon_phase")]) as server, pytest.raises(sandbar.SandbarError) as caught:
        run(kind, server.url, get)
    assert type(caught.value) is sandbar.SandbarError
    assert caught.value.code == "moon_phase"


HTML = b"<html><body>Bad gateway</body></html>"


@both
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (content(HTML, code=502, content_type="text/html"), 502),
        (content(HTML, code=200, content_type="text/html"), 200),
        (content(b"", code=404), 404),
        (content(b"[1]", code=404), 404),
        (content(b'{"code": 7, "detail": []}', code=400), 400),
        (content(b"", code=302, location="/elsewhere"), 302),
    ],
    ids=["html", "html as success", "nothing", "a list", "wrong types", "redirect"],
)
def test_an_answer_of_another_server_has_the_code_unknown(kind: Kind, answer: Answer, code: int) -> None:
    with FaultServer([answer]) as server, pytest.raises(sandbar.SandbarError) as caught:
        run(kind, server.url, get)
    assert (type(caught.value), caught.value.code, caught.value.status) == (sandbar.SandbarError, "unknown", code)


@both
@pytest.mark.parametrize(
    "answer",
    [reset, raw(b""), content(b'{"id": "1"}', sent=5), raw(b"SSH-2.0-OpenSSH\r\n"), raw(b"HTTP/1.1 200 OK\r\ncont")],
    ids=["reset", "closed", "half a body", "not HTTP", "half a head"],
)
def test_a_broken_connection_is_a_connection_error(kind: Kind, answer: Answer) -> None:
    with FaultServer([answer]) as server, pytest.raises(sandbar.ConnectionError) as caught:
        run(kind, server.url, get, retry_for_sec=0)
    assert isinstance(caught.value, builtins.ConnectionError)
    assert not isinstance(caught.value, sandbar.TimeoutError)
    assert server.url in str(caught.value)


@both
def test_an_error_with_half_a_body_still_has_its_status(kind: Kind) -> None:
    with FaultServer([content(b'{"code":', sent=4, code=404)]) as server, pytest.raises(sandbar.SandbarError) as caught:
        run(kind, server.url, get)
    assert (caught.value.status, caught.value.code) == (404, "unknown")


@both
@pytest.mark.parametrize("answer", [stall, trickle, raw(b"HTTP/1.1 200 OK\r\n")], ids=["stall", "trickle", "head"])
def test_a_server_that_stalls_is_a_timeout_error(kind: Kind, answer: Answer) -> None:
    def stalled(connection: object) -> None:
        answer(connection)  # type: ignore[arg-type]
        stall(connection)  # type: ignore[arg-type]

    with FaultServer([stalled]) as server, pytest.raises(sandbar.TimeoutError) as caught:
        run(kind, server.url, lambda client: client.account.get(timeout=0.3))
    assert isinstance(caught.value, builtins.TimeoutError)
    assert isinstance(caught.value, sandbar.ConnectionError)
    # The client must not send a second request, because the service could carry out both.
    assert len(server.requests) == 1


@both
def test_the_timeout_of_the_client_holds_for_every_call(kind: Kind) -> None:
    with FaultServer([stall]) as server, pytest.raises(sandbar.TimeoutError):
        run(kind, server.url, get, timeout=0.3)


@both
def test_an_address_where_nobody_listens_is_a_connection_error(kind: Kind) -> None:
    with FaultServer() as server:
        url = server.url
    with pytest.raises(sandbar.ConnectionError) as caught:
        run(kind, url, get, retry_for_sec=0.2)
    assert caught.value.is_unsent


@both
def test_an_invalid_header_is_refused_without_a_request(kind: Kind) -> None:
    with FaultServer([status(201, {})]) as server, pytest.raises(Exception, match=r"(?i)header|illegal"):
        run(kind, server.url, lambda client: client.machines.create(idempotency_key="a\nb"))
    assert server.requests == []
