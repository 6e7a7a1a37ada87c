"""A TCP connection to a port of a machine, carried over a WebSocket."""

from __future__ import annotations

from types import TracebackType

from sandbar._platform_async import WebSocket, WebSocketClosed
from sandbar.errors import ConnectionError

PORT_PROTOCOL = "sandbar.port.v1"
#: The most bytes of one message.
MESSAGE_BYTES = 1024 * 1024
#: A text message that says: the sender of this message sends no more bytes, but still receives.
END_OF_BYTES = '{"type":"end"}'
#: The WebSocket's close code when the program has ended the connection.
ENDED = 1000


class AsyncPortConnection:
    """A connection to a port. At the end of a `with` block it is closed."""

    def __init__(self, socket: WebSocket, base_url: str) -> None:
        self._socket = socket
        self._base_url = base_url
        self._is_ended = False

    async def read(self) -> bytes:
        """
        Returns the next bytes, or `b""` when the program has ended the connection. Raises ConnectionError when the
        connection breaks.
        """
        while not self._is_ended:
            try:
                message = await self._socket.receive()
            except WebSocketClosed as error:
                self._is_ended = True
                if error.code == ENDED:
                    break
                raise ConnectionError(f"the connection to the port broke: {error}") from error
            if isinstance(message, bytes) and message:
                return message
        return b""

    async def write(self, data: bytes) -> None:
        """Sends bytes. Raises ConnectionError when the connection has ended."""
        for at in range(0, len(data), MESSAGE_BYTES):
            await self._send(data[at : at + MESSAGE_BYTES])

    async def end(self) -> None:
        """Ends only the direction to the program. The program can still send bytes."""
        await self._send(END_OF_BYTES)

    async def aclose(self) -> None:
        await self._socket.aclose()

    async def __aenter__(self) -> AsyncPortConnection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _send(self, message: str | bytes) -> None:
        try:
            await self._socket.send(message)
        except WebSocketClosed as error:
            raise ConnectionError(f"the connection to the port has ended: {error}") from error
