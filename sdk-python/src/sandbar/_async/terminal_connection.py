"""
A client of one terminal. When its connection breaks, it connects again. The service numbers the bytes of output, so it
yields each byte once. It has no task in the background: a read or write notices the broken connection.
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
#: The service closes a connection with these codes when this client sent something wrong. Then do not connect again.
OWN_FAULTS = (1009, 4400)
#: The options that can also be sent for a terminal that runs already. The others describe a new terminal.
SIZE = ("cols", "rows")
EVENTS = ("on_disconnect", "on_reconnect", "on_gap")


class AsyncTerminalConnection:
    """
    A terminal in a machine. Iterate over it, or call `read`, to get its output; the iteration ends when the program
    ends, or after `leave`. At the end of a `with` block the client leaves, and the terminal stays open in the machine
    for 10 minutes. You may read and write in different tasks or threads.
    """

    id: str
    """Other clients can join the terminal with this id."""
    exit: TerminalExit | None = None
    """How the program ended. None until all of its output was read."""

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
        #: The number of the next byte of output for the caller. None before the first connection.
        self._position: int | None = None
        #: How many of the next bytes from the service the caller has already, after a new connection.
        self._repeated = 0
        self._is_over = False
        self._failure: Exception | None = None
        self._connecting = Lock()
        self._writing = Lock()

    async def read(self, *, timeout: float | None = None) -> bytes:
        """Returns the next output, or `b""` at the end. Raises TimeoutError if none comes within `timeout` seconds."""
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
        Sends input. If the connection is broken, first connects again. Input that was being sent when the connection
        broke may be lost. Has no effect when the terminal has ended.
        """
        content = data.encode() if isinstance(data, str) else data
        async with self._writing:
            for at in range(0, len(content), MESSAGE_BYTES):
                await self._send(content[at : at + MESSAGE_BYTES])

    async def resize(self, cols: int, rows: int) -> None:
        """Changes the size of the terminal. If several clients change it, the last change counts."""
        self._size = {"cols": cols, "rows": rows}
        async with self._writing:
            await self._send(json.dumps({"type": "resize", **self._size}))

    async def leave(self) -> None:
        """Ends the connection. The terminal stays open in the machine."""
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
        Makes the first connection. If that fails, the service may have opened the terminal already. So the next attempt
        tries to join that terminal, and opens another terminal only if it does not exist.
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
        """Returns the connection. If it broke, connects again. Returns None when the terminal has ended."""
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
        """Connects again. Tries for as long as requests are retried, and then raises the last error."""
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
        # This request may be repeated: an unused ticket expires, so a second ticket does no harm.
        request = Request("POST", self._path, body=body, is_repeatable=True, deadline=deadline)
        return await self._transport.json(TerminalSession, request)

    async def _connect(self, session: TerminalSession) -> WebSocket:
        path = f"{session['ws_path']}?ticket={quote(session['ticket'], safe='')}"
        try:
            return await self._transport.web_socket(path, TERMINAL_PROTOCOL, has_ticket=True)
        except SandbarError as error:
            # The service gave this ticket just now. So a lost attempt has used it already, or it expired on the way.
            # Another ticket may work.
            if error.status == 401:
                raise ConnectionError("the service refused a ticket that is new") from error
            raise

    async def _lose(self, socket: WebSocket, error: WebSocketClosed) -> None:
        """Notes that a connection has ended. The next read or write connects again, unless the terminal has ended."""
        async with self._connecting:
            if self._socket is not socket or self._is_over:
                return
            self._socket = None
        if error.code in OWN_FAULTS:
            self._fail(ConnectionError(f"the service closed the terminal: {error}"))
        else:
            self._call("on_disconnect", error.reason or "the connection broke")

    def _receive(self, data: bytes) -> bytes:
        """Returns the part of `data` that the caller has not got yet."""
        fresh = data[self._repeated :]
        self._repeated -= len(data) - len(fresh)
        self._position = (self._position or 0) + len(fresh)
        return fresh

    async def _receive_message(self, text: str) -> None:
        """Handles a text message. Ignores unknown types, because a newer service may send other messages."""
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
