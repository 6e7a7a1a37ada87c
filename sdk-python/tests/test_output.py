"""Tests that the client yields every byte of a job's output exactly once, even if connections break."""

from __future__ import annotations

import base64
from typing import Any

import pytest

import sandbar
from sandbar import Job, OutputChunk
from sandbar.models import Exec
from sandbar.results import exec_result

from .clients import Kind, both, run, take, wait_until
from .fault_server import Answer, FaultServer, content, events, refusal, reset, stall, status

PATH = "/v1/machines/m/execs/e/output"


def page(offset: int, text: str, *, stream: str = "stdout", eof: bool = False) -> dict[str, Any]:
    data = text.encode()
    end = offset + len(data)
    encoded = base64.b64encode(data).decode()
    known = {"exec_id": "e", "stream": stream, "offset": offset, "data": encoded}
    return {**known, "next_offset": end, "total_bytes": end, "eof": eof}


def job(**changes: object) -> Exec:
    known: dict[str, Any] = {
        "id": "e",
        "machine_id": "m",
        "name": "",
        "status": "exited",
        "exit_code": 0,
        "signal": None,
        "timeout_sec": None,
        "stdout_bytes": 0,
        "stderr_bytes": 0,
        "truncated": False,
        "output_expired": False,
        "created_at": "2026-01-02T03:04:05.000Z",
        "finished_at": None,
    }
    return {**known, **changes}  # type: ignore[typeddict-item]


@both
def test_a_broken_stream_goes_on_at_the_same_byte(kind: Kind) -> None:
    answers = [
        events(page(0, "one "), page(4, "two "), then=reset),
        refusal(503, "shutting_down"),
        # The empty page is a heartbeat. Then the stream ends early, as when the service shuts down.
        events(page(8, "three "), page(14, "")),
        # Half an event.
        events(page(14, "four "), then=lambda connection: connection.sendall(b'data: {"exec')),
        events(page(19, "five", eof=True)),
    ]
    with FaultServer(answers) as server:
        chunks = run(kind, server.url, lambda client: client.execs.stream_output("m", "e", "stdout"))
    assert b"".join(chunk.data for chunk in chunks) == b"one two three four five"
    assert [chunk.offset for chunk in chunks] == [0, 4, 8, 14, 19]
    resumed = [(request.target, request.headers.get("last-event-id")) for request in server.requests]
    assert resumed == [
        (f"{PATH}?stream=stdout&offset={offset}&limit=1048576", str(offset) if offset else None)
        for offset in (0, 8, 8, 14, 19)
    ]


@both
def test_a_stream_that_stays_broken_is_a_connection_error(kind: Kind) -> None:
    with FaultServer([events(page(0, "one"), then=reset)]) as server, pytest.raises(sandbar.ConnectionError):
        run(kind, server.url, lambda client: client.execs.stream_output("m", "e", "stdout"), retry_for_sec=0)


@both
def test_output_that_was_dropped_is_an_output_expired_error(kind: Kind) -> None:
    with FaultServer([refusal(410, "output_expired")]) as server, pytest.raises(sandbar.OutputExpiredError):
        run(kind, server.url, lambda client: client.execs.stream_output("m", "e", "stdout"))


@both
def test_an_answer_that_is_no_stream_is_an_error(kind: Kind) -> None:
    with FaultServer([content(b"<html>", content_type="text/html")]) as server, pytest.raises(sandbar.SandbarError):
        run(kind, server.url, lambda client: client.execs.stream_output("m", "e", "stdout"))


@both
def test_the_timeout_of_a_stream_ends_it(kind: Kind) -> None:
    with FaultServer([events(page(0, "one"), then=stall)]) as server, pytest.raises(sandbar.TimeoutError):
        run(kind, server.url, lambda client: client.execs.stream_output("m", "e", "stdout", timeout=0.3))


class TwoStreams(FaultServer):
    """Answers each request with the answer for its stream."""

    def __init__(self, stdout: Answer, stderr: Answer) -> None:
        super().__init__()
        self._by_stream = {"stream=stdout": stdout, "stream=stderr": stderr}

    def choose(self, target: str) -> Answer:
        return next(answer for part, answer in self._by_stream.items() if part in target)


@both
def test_both_streams_come_as_they_are_written(kind: Kind) -> None:
    out = events(page(0, "out", eof=True))
    err = events(page(0, "err", stream="stderr", eof=True))
    with TwoStreams(out, err) as server:
        chunks = run(kind, server.url, lambda client: client.execs.job("m", "e").output())
    assert {(chunk.stream, chunk.data) for chunk in chunks} == {("stdout", b"out"), ("stderr", b"err")}


@both
def test_the_error_of_one_stream_is_raised(kind: Kind) -> None:
    with (
        TwoStreams(events(page(0, "out"), then=stall), refusal(410, "output_expired")) as server,
        pytest.raises(sandbar.OutputExpiredError),
    ):
        run(kind, server.url, lambda client: client.execs.job("m", "e").output())


@both
def test_a_reader_that_stops_early_closes_its_connections(kind: Kind) -> None:
    with TwoStreams(events(page(0, "ready"), then=stall), events(then=stall)) as server:
        assert take(kind, server.url, 1, lambda client: client.execs.job("m", "e").output()) == [
            OutputChunk("stdout", 0, b"ready")
        ]
        wait_until(lambda: server.open_connections == 0)


@both
def test_a_short_command_takes_one_request(kind: Kind) -> None:
    started = {**job(exit_code=3), "output": {"stdout": page(0, "hi", eof=True), "stderr": page(0, "", eof=True)}}
    with FaultServer([status(201, started)]) as server:
        result = run(kind, server.url, lambda client: client.sandbox("m").exec("echo hi; exit 3", cwd="/tmp"))
    assert (result.exit_code, result.stdout, result.stderr, result.combined) == (3, "hi", "", "hi")
    assert server.requests[0].target == "/v1/machines/m/execs?wait_ms=30000"
    sent = server.requests[0].json
    assert (sent["command"], sent["cwd"]) == ("echo hi; exit 3", "/tmp")


@both
def test_a_long_command_is_read_to_its_end(kind: Kind) -> None:
    started = {**job(status="running", exit_code=None), "output": {"stdout": page(0, "a"), "stderr": page(0, "x")}}
    answers = [
        status(201, started),
        events(page(1, "b", eof=True)),
        events(page(1, "y", stream="stderr", eof=True)),
        status(200, job(status="running", exit_code=None)),
        status(200, job(exit_code=0)),
    ]
    with FaultServer(answers) as server:
        result = run(kind, server.url, lambda client: client.sandbox("m").exec(["sh", "-c", "x"]))
    assert (result.stdout, result.stderr, result.exit_code) == ("ab", "xy", 0)
    assert server.requests[0].json["argv"] == ["sh", "-c", "x"]


@both
def test_a_short_timeout_of_the_client_shortens_the_long_polls(kind: Kind) -> None:
    with FaultServer([status(200, job())]) as server:
        run(kind, server.url, lambda client: client.execs.wait("m", "e"), timeout=4)
    assert server.requests[0].target.endswith("?wait_ms=2000")


@pytest.mark.parametrize(
    ("ended", "exit_code", "timed_out"),
    [
        (job(exit_code=7), 7, False),
        (job(exit_code=None, signal="SIGKILL"), 137, False),
        (job(exit_code=None, signal="SIGTERM", status="canceled"), 143, False),
        (job(exit_code=None, signal="SIGUSR1"), 138, False),
        (job(exit_code=None, signal="SIGKILL", status="timed_out"), 124, True),
        (job(exit_code=None, status="canceled"), 125, False),
    ],
)
def test_the_exit_code_is_that_of_a_shell(ended: Exec, exit_code: int, timed_out: bool) -> None:
    result = exec_result(ended, b"\xff", b"e")
    assert (result.exit_code, result.timed_out, result.signal) == (exit_code, timed_out, ended["signal"])
    assert (result.stdout, result.combined, result.stdout_bytes) == ("\ufffd", "\ufffde", b"\xff")


def test_a_lost_job_is_an_error() -> None:
    with pytest.raises(sandbar.JobLostError, match=r"machine m .* job e"):
        exec_result(job(status="lost", exit_code=None), b"", b"")


@both
def test_stdin_is_written_once_after_a_lost_answer(kind: Kind) -> None:
    accepted = [status(200, {"next_offset": n, "closed": False}) for n in (2, 4, 6)]
    with FaultServer([accepted[0], reset, accepted[1], accepted[2]]) as server:
        # The job runs already, so the client first asks for the offset. Then the service accepts two of the four bytes.
        run(kind, server.url, lambda client: client.execs.job("m", "e").stdin.write("abcd"))
    sent = [(request.target.partition("?")[2], request.body) for request in server.requests]
    assert sent == [("offset=0", b""), ("offset=2", b"abcd"), ("offset=2", b"abcd"), ("offset=4", b"cd")]


@both
def test_stdin_is_closed_when_the_job_has_accepted_it(kind: Kind) -> None:
    answers = [status(200, {"next_offset": 0, "closed": closed}) for closed in (False, False, True)]
    with FaultServer(answers) as server:
        run(kind, server.url, lambda client: client.execs.job("m", "e").stdin.close())
    assert [request.target.partition("?")[2] for request in server.requests] == [
        "offset=0",
        "offset=0&close=true",
        "offset=0&close=true",
    ]


@both
def test_a_write_to_a_command_that_does_not_read_times_out(kind: Kind) -> None:
    answers = [status(200, {"next_offset": 0, "closed": False})] * 100
    with FaultServer(answers) as server, pytest.raises(sandbar.TimeoutError):
        run(kind, server.url, lambda client: client.execs.job("m", "e").stdin.write("x", timeout=0.3))


@both
def test_more_stdin_than_a_request_has_room_for_is_written_after_it(kind: Kind) -> None:
    stdin = bytes(range(256)) * 4096
    first = 512 * 1024
    answers = [
        status(201, job(status="running", exit_code=None)),
        status(200, {"next_offset": len(stdin), "closed": False}),
        status(200, {"next_offset": len(stdin), "closed": True}),
        status(200, job()),
        events(page(0, "done", eof=True)),
        events(page(0, "", stream="stderr", eof=True)),
    ]
    with FaultServer(answers) as server:
        result = run(kind, server.url, lambda client: client.sandbox("m").exec("cat", stdin=stdin))
    assert result.stdout == "done"
    started, written, closed = server.requests[:3]
    assert base64.b64decode(str(started.json["stdin"])) == stdin[:first]
    assert started.json["stdin_open"] is True
    assert (written.target.partition("?")[2], written.body) == (f"offset={first}", stdin[first:])
    assert closed.target.endswith(f"offset={len(stdin)}&close=true")


def test_a_job_has_its_ids() -> None:
    with sandbar.Client(base_url="http://localhost", api_key="k") as client:
        handle = client.sandbox("m").job("e")
        assert isinstance(handle, Job)
        assert (handle.machine_id, handle.id) == ("m", "e")
