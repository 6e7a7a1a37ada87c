"""Tests which calls the time limit of a client covers, and that a WebSocket follows no redirect to another host."""

from __future__ import annotations

import asyncio
import json
import socket
import time

import pytest

import sandbar

from .clients import KEY, Kind, both, run
from .fault_server import Answer, FaultServer, events, raw, status
from .test_output import page

#: The time limit of the client, seconds. It is shorter than the pauses of the answers below.
TIMEOUT = 0.2


def after(seconds: float, answer: Answer) -> Answer:
    def wait(connection: socket.socket) -> None:
        time.sleep(seconds)
        answer(connection)

    return wait


@both
def test_an_upload_may_take_longer_than_the_limit_of_the_client(kind: Kind) -> None:
    with FaultServer([after(3 * TIMEOUT, status(200, {"path": "/a"}))] * 2) as server:
        entry = run(kind, server.url, lambda client: client.files("m").write("/a", b"x"), timeout=TIMEOUT)
        assert entry == {"path": "/a"}
        with pytest.raises(sandbar.TimeoutError):
            run(kind, server.url, lambda client: client.files("m").write("/a", b"x", timeout=TIMEOUT))


@both
def test_a_stream_may_be_silent_for_longer_than_the_limit_of_the_client(kind: Kind) -> None:
    def end(connection: socket.socket) -> None:
        time.sleep(3 * TIMEOUT)
        connection.sendall(f"data: {json.dumps(page(3, 'two', eof=True))}\n\n".encode())

    with FaultServer([events(page(0, "one"), then=end)]) as server:
        chunks = run(
            kind,
            server.url,
            lambda client: client.execs.stream_output("m", "e", "stdout"),
            timeout=TIMEOUT,
            retry_for_sec=0,
        )
    assert b"".join(chunk if isinstance(chunk, bytes) else chunk.data for chunk in chunks) == b"onetwo"


@both
def test_a_connection_to_a_port_follows_no_redirection(kind: Kind) -> None:
    with FaultServer() as other:
        elsewhere = other.url.replace("http", "ws")
        answer = raw(
            f"HTTP/1.1 302 Found\r\nlocation: {elsewhere}/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()
        )
        with FaultServer([answer]) as server:
            if kind == "sync":
                with sandbar.Client(base_url=server.url, api_key=KEY) as client, pytest.raises(sandbar.SandbarError):
                    client.ports("m").connect(80)
            else:

                async def connect() -> None:
                    async with sandbar.AsyncClient(base_url=server.url, api_key=KEY) as client:
                        await client.ports("m").connect(80)

                with pytest.raises(sandbar.SandbarError):
                    asyncio.run(connect())
        assert other.requests == []
