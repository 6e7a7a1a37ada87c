"""
A client of one terminal. It connects again by itself when its connection breaks, and yields every byte of output once,
because the service numbers them. There is no task in the background: reading and writing find the broken connection.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Any
from urllib.parse import quote

from sandbar._async.transport import SILENCE_SEC, AsyncTransport
from sandbar._deadline import Deadline
from sandbar._options import OpenTerminal
from sandbar._paths import machine_path
from sandbar._platform_async import Lock, WebSocket, WebSocketClosed, sleep
from sandbar._request import Request
from sandbar._retry import REOPEN_SEC, is_unavailable
from sandbar.errors import ConnectionError, SandbarError, TimeoutError
from sandbar.models import TerminalSession
from sandbar.results import TerminalExit

TERMINAL_PROTOCOL = "sandbar.terminal.v1"
#: The longest message of a client, bytes.
MESSAGE_BYTES = 64 * 1024
#: How long the service may take to answer a ping, seconds.
PING_SEC = 10.0
#: The service closed the connection because of what this client sent, so that another one makes no sense.
OWN_FAULTS = (1009, 4400)
#: The options that count for a terminal that runs already, too. The others describe a new terminal.
SIZE = ("cols", "rows")
EVENTS = ("on_disconnect", "on_reconnect", "on_gap")


class AsyncTerminalConnection:
    """
    A terminal in a machine. Iterate over it, or call `read`, for its output; the iteration ends when the program ends,
    or after `leave`. At the end of a `with` block the client leaves, and the terminal goes on in the machine for 10
    minutes. Reading and writing may happen in different tasks or threads.
    """

    id: str
    """With it other clients can join the terminal."""
    exit: TerminalExit | None = None
    """How the program ended. None while it runs, and until its output was read to the end."""

    @classmethod
    async def open(
        cls, transport: AsyncTransport, machine_id: str, options: OpenTerminal, deadline: Deadline
    ) -> AsyncTerminalConnection:
        """See Terminals.open."""
        terminal = cls(transport, machine_id, options)
        await terminal._open(deadline)
        return terminal

    def __init__(self, transport: AsyncTransport, machine_id: str, options: OpenTerminal) -> None:
        self.id = options.get("terminal_id", "")
        self._transport = transport
        self._path = f"{machine_path(machine_id)}/terminal-session"
        self._options = options
        self._size: dict[str, Any] = {name: value for name, value in options.items() if name in SIZE}
        self._socket: WebSocket | None = None
        #: Number of the next byte of output that the caller has not got. None before the first connection.
        self._position: int | None = None
        #: How many of the next bytes the caller has already.
        self._repeated = 0
        self._is_over = False
        self._failure: Exception | None = None
        self._connecting = Lock()
        self._writing = Lock()

    async def read(self, *, timeout: float | None = None) -> bytes:
        """The next bytes of output, or none at the end. Raises TimeoutError when none come within `timeout` seconds."""
        deadline = Deadline(timeout)
        while not self._is_over:
            socket = await self._connected()
            if socket is None:
                break
            try:
                message = await socket.receive(deadline.limit(SILENCE_SEC))
                if message is None and not deadline.is_over and not await socket.answers(PING_SEC):
                    await socket.aclose()
                    raise WebSocketClosed(1006, "")
            except WebSocketClosed as error:
                await self._lose(socket, error)
                continue
            if isinstance(message, bytes):
                fresh = self._receive(message)
                if fresh:
                    return fresh
            elif isinstance(message, str):
                await self._receive_message(message)
            elif deadline.is_over:
                raise TimeoutError(f"the terminal wrote nothing for {deadline.seconds:g} s")
        if self._failure is not None:
            raise self._failure
        return b""

    async def write(self, data: bytes | str) -> None:
        """
        Sends input. Waits for a connection when there is none. Input that was on its way when a connection broke is
        lost. Has no effect when the terminal has ended.
        """
        content = data.encode() if isinstance(data, str) else data
        async with self._writing:
            for at in range(0, len(content), MESSAGE_BYTES):
                await self._send(content[at : at + MESSAGE_BYTES])

    async def resize(self, cols: int, rows: int) -> None:
        """Changes the size of the terminal. With several clients the last change counts."""
        self._size = {"cols": cols, "rows": rows}
        async with self._writing:
            await self._send(json.dumps({"type": "resize", **self._size}))

    async def leave(self) -> None:
        """Ends the connection. The terminal goes on in the machine."""
        self._is_over = True
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.aclose()

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        while data := await self.read():
            yield data

    async def __aenter__(self) -> AsyncTerminalConnection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()

    async def _open(self, deadline: Deadline) -> None:
        """
        Makes the first connection. When the connection breaks before it is open, the terminal may be open already, so
        this tries to join that terminal before it opens another.
        """
        first = {name: value for name, value in self._options.items() if name not in EVENTS}
        body = first
        began = time.monotonic()
        while True:
            session = await self._request_session(body, deadline)
            try:
                self._socket = await self._connect(session)
                self.id = session["terminal_id"]
                return
            except (SandbarError, ConnectionError) as error:
                must_open = body is not first and isinstance(error, SandbarError) and error.code == "not_found"
                is_late = time.monotonic() + REOPEN_SEC > began + self._transport.retry_for_sec
                if is_late or not (must_open or _is_passing(error)):
                    raise
                body = first if must_open else {"terminal_id": session["terminal_id"], **self._size}
            await sleep(REOPEN_SEC)

    async def _connected(self) -> WebSocket | None:
        """The connection, made again when it broke. None when the terminal has ended."""
        async with self._connecting:
            if self._is_over or self._socket is not None:
                return self._socket
            try:
                self._socket = await self._reconnect()
            except (SandbarError, ConnectionError) as error:
                self._fail(error)
                raise
            if self._is_over:
                # The caller left while this connected again.
                socket, self._socket = self._socket, None
                await socket.aclose()
                return None
        self._call("on_reconnect")
        return self._socket

    async def _reconnect(self) -> WebSocket:
        """Connects again, for as long as requests are retried. Raises the last error after that time."""
        broken_at = time.monotonic()
        while True:
            try:
                return await self._connect(
                    await self._request_session({"terminal_id": self.id, **self._size}, Deadline())
                )
            except (SandbarError, ConnectionError) as error:
                is_late = time.monotonic() + REOPEN_SEC > broken_at + self._transport.retry_for_sec
                if self._is_over or is_late or not _is_passing(error):
                    raise
            await sleep(REOPEN_SEC)

    async def _request_session(self, body: dict[str, Any], deadline: Deadline) -> TerminalSession:
        # A ticket that nobody uses expires, so a second one does no harm.
        request = Request("POST", self._path, body=body, is_repeatable=True, deadline=deadline)
        return await self._transport.json(TerminalSession, request)

    async def _connect(self, session: TerminalSession) -> WebSocket:
        path = f"{session['ws_path']}?ticket={quote(session['ticket'], safe='')}"
        try:
            return await self._transport.web_socket(path, TERMINAL_PROTOCOL, has_ticket=True)
        except SandbarError as error:
            # The ticket is new, so an attempt whose answer was lost has spent it, or it expired on the way.
            if error.status == 401:
                raise ConnectionError("the service refused a ticket that is new") from error
            raise

    async def _lose(self, socket: WebSocket, error: WebSocketClosed) -> None:
        """Notes that a connection has ended. The next read or write makes another, unless the terminal has ended."""
        async with self._connecting:
            if self._socket is not socket or self._is_over:
                return
            self._socket = None
        if error.code in OWN_FAULTS:
            self._fail(ConnectionError(f"the service closed the terminal: {error}"))
        else:
            self._call("on_disconnect", error.reason or "the connection broke")

    def _receive(self, data: bytes) -> bytes:
        """The bytes that the caller has not got yet."""
        fresh = data[self._repeated :]
        self._repeated -= len(data) - len(fresh)
        self._position = (self._position or 0) + len(fresh)
        return fresh

    async def _receive_message(self, text: str) -> None:
        """Messages of other types are ignored, so that a newer service may send some."""
        try:
            message = json.loads(text)
        except ValueError:
            return
        if not isinstance(message, dict):
            return
        if message.get("type") == "exit":
            self.exit = TerminalExit(message.get("code"), message.get("signal"))
            await self.leave()
        elif message.get("type") == "start":
            offset = int(message["offset"])
            position = offset if self._position is None else self._position
            self._position = max(position, offset)
            self._repeated = max(0, position - offset)
            if offset > position:
                self._call("on_gap", offset - position)

    async def _send(self, message: str | bytes) -> None:
        while not self._is_over:
            socket = await self._connected()
            if socket is None:
                return
            try:
                await socket.send(message)
                return
            except WebSocketClosed as error:
                await self._lose(socket, error)

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._is_over = True

    def _call(self, event: str, *args: object) -> None:
        callback: Any = self._options.get(event)
        if callback is not None:
            callback(*args)


def _is_passing(error: Exception) -> bool:
    """
    Whether another attempt may succeed. After 429 it may, because the service counts a broken connection until it
    notices that the client is gone.
    """
    return is_unavailable(error) or (isinstance(error, SandbarError) and error.status == 429)
