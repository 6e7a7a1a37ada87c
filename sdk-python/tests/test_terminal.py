"""Tests terminals and connections to ports, over WebSockets that break."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.sync.server import Server, ServerConnection, serve

import sandbar
from sandbar import AsyncClient, Client

from .clients import KEY, Kind, both


class TerminalServer:
    """Accepts WebSockets. Each connection is passed to the next function in `sessions`."""

    def __init__(self, *sessions: Callable[[ServerConnection], None]) -> None:
        self._sessions = iter(sessions)
        self.bodies: list[dict[str, Any]] = []
        self.targets: list[str] = []
        self.agents: list[str | None] = []

    def accept(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        self.targets.append(connection.request.path)
        self.agents.append(connection.request.headers.get("user-agent"))
        next(self._sessions)(connection)


def start(offset: int) -> str:
    return json.dumps({"type": "start", "terminal_id": "t", "offset": offset})


@contextmanager
def running(server: TerminalServer) -> Iterator[str]:
    def gives_first(protocols: Any, offered: Any) -> Any:
        return offered[0]

    with serve(server.accept, "127.0.0.1", 0, select_subprotocol=gives_first) as service:
        thread = threading.Thread(target=service.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{_port(service)}"
        finally:
            service.shutdown()
            thread.join()


def _port(service: Server) -> int:
    return int(service.socket.getsockname()[1])


def give_tickets(monkeypatch: pytest.MonkeyPatch, server: TerminalServer) -> None:
    """Replaces the request for a ticket, because the library of the test server cannot handle POST."""

    def session(request: Any) -> dict[str, str]:
        server.bodies.append(request.body)
        return {"ticket": f"k{len(server.bodies)}", "terminal_id": "t", "ws_path": "/terminal", "machine_id": "m"}

    async def give_async(_: object, kind: object, request: Any, find_earlier: object = None) -> Any:
        return session(request)

    def give_sync(_: object, kind: object, request: Any, find_earlier: object = None) -> Any:
        return session(request)

    monkeypatch.setattr("sandbar._async.transport.AsyncTransport.json", give_async)
    monkeypatch.setattr("sandbar._sync.transport.Transport.json", give_sync)


def use(kind: Kind, url: str, work: Callable[[Any, Any], Any], **options: Any) -> Any:
    """
    Opens a terminal, calls `work` with it and returns the result. The second argument of `work` is a function that
    waits for the result of a call: with the asynchronous client a call returns a coroutine.
    """
    loop = asyncio.new_event_loop()
    wait: Callable[[Any], Any] = (lambda result: result) if kind == "sync" else loop.run_until_complete
    client: Any = (Client if kind == "sync" else AsyncClient)(base_url=url, api_key=KEY, retry_for_sec=5)
    try:
        terminal = wait(client.terminals.open("m", **options))
        try:
            return work(terminal, wait)
        finally:
            wait(terminal.leave())
    finally:
        wait(client.close() if kind == "sync" else client.aclose())
        loop.close()


def read_all(terminal: Any, wait: Any) -> bytes:
    parts = []
    while part := wait(terminal.read()):
        parts.append(part)
    return b"".join(parts)


@both
def test_a_terminal_that_broke_goes_on_at_the_same_byte(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    def first(connection: ServerConnection) -> None:
        connection.send(start(100))
        connection.send(b"hello ")
        connection.socket.shutdown(socket.SHUT_RDWR)

    def second(connection: ServerConnection) -> None:
        # The client has the bytes "o" and " " already: the first message, and the beginning of the second.
        connection.send(start(104))
        connection.send(b"o")
        connection.send(b" again ")
        connection.close(1012, "restart")

    def third(connection: ServerConnection) -> None:
        # The terminal no longer has the bytes before 120, so the client misses 8 bytes.
        connection.send(start(120))
        connection.send(b"end")
        connection.send('{"type":"news"}')
        connection.send(json.dumps({"type": "exit", "code": 3, "signal": None}))

    happened: list[object] = []
    server = TerminalServer(first, second, third)
    give_tickets(monkeypatch, server)

    def work(terminal: Any, wait: Any) -> None:
        assert read_all(terminal, wait) == b"hello again end"
        assert terminal.exit == sandbar.TerminalExit(3, None)
        assert terminal.id == "t"
        # A write after the end has no effect.
        wait(terminal.write("x"))

    with running(server) as url:
        use(
            kind,
            url,
            work,
            cols=100,
            rows=30,
            command=["bash"],
            on_disconnect=happened.append,
            on_reconnect=lambda: happened.append("again"),
            on_gap=happened.append,
        )
    assert happened == ["the connection broke", "again", "restart", "again", 8]
    joined = {"terminal_id": "t", "cols": 100, "rows": 30}
    assert server.bodies == [{"cols": 100, "rows": 30, "command": ["bash"]}, joined, joined]
    assert server.targets == [f"/terminal?ticket=k{n}" for n in (1, 2, 3)]
    assert all(agent is not None and agent.startswith("sandbar-sdk-python/") for agent in server.agents)


@both
def test_input_and_sizes_reach_the_terminal(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[str | bytes] = []

    def echo(connection: ServerConnection) -> None:
        connection.send(start(0))
        for message in connection:
            got.append(message)
            connection.send(b"!")

    server = TerminalServer(echo)
    give_tickets(monkeypatch, server)

    def work(terminal: Any, wait: Any) -> None:
        wait(terminal.write("ls\n"))
        assert wait(terminal.read()) == b"!"
        wait(terminal.resize(120, 40))
        assert wait(terminal.read()) == b"!"
        with pytest.raises(sandbar.TimeoutError):
            wait(terminal.read(timeout=0.05))
        wait(terminal.write(b"x" * 100_000))
        assert wait(terminal.read()) + wait(terminal.read()) == b"!!"

    with running(server) as url:
        use(kind, url, work)
    assert got[0] == b"ls\n"
    assert json.loads(got[1]) == {"type": "resize", "cols": 120, "rows": 40}
    assert b"".join(part for part in got[2:] if isinstance(part, bytes)) == b"x" * 100_000


@both
def test_a_terminal_that_cannot_be_reached_any_more_is_an_error(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(connection: ServerConnection) -> None:
        connection.close(4400, "validation_error: no")

    server = TerminalServer(refuse)
    give_tickets(monkeypatch, server)

    def work(terminal: Any, wait: Any) -> None:
        for _ in range(2):
            with pytest.raises(sandbar.ConnectionError, match="validation_error: no"):
                wait(terminal.read())

    with running(server) as url:
        use(kind, url, work)


@both
def test_bytes_of_a_port_go_both_ways(kind: Kind) -> None:
    got: list[str | bytes] = []

    def echo(connection: ServerConnection) -> None:
        for message in connection:
            got.append(message)
            if isinstance(message, str):
                break
            connection.send(message[::-1])

    server = TerminalServer(echo)
    with running(server) as url:
        if kind == "sync":
            with Client(base_url=url, api_key=KEY) as client, client.ports("m").connect(80) as port:
                port.write(b"abc")
                assert port.read() == b"cba"
                port.end()
                assert (port.read(), port.read()) == (b"", b"")
        else:

            async def main() -> None:
                async with (
                    AsyncClient(base_url=url, api_key=KEY) as client,
                    await client.ports("m").connect(80) as port,
                ):
                    await port.write(b"abc")
                    assert await port.read() == b"cba"
                    await port.end()
                    assert (await port.read(), await port.read()) == (b"", b"")

            asyncio.run(main())
    assert got == [b"abc", '{"type":"end"}']
    assert server.targets == ["/v1/machines/m/ports/80/connect"]


@both
def test_a_refused_connection_is_the_error_of_the_service(kind: Kind) -> None:
    from .clients import run
    from .fault_server import FaultServer, refusal

    with FaultServer([refusal(502, "port_not_open")]) as server, pytest.raises(sandbar.PortNotOpenError):
        run(kind, server.url, lambda client: client.ports("m").connect(80))
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.requests[0].headers["sec-websocket-protocol"] == "sandbar.port.v1"
