"""
The parts of the asynchronous client that cannot be turned into the blocking client by removing `async` and `await`.
`_platform_sync.py` defines the same names for the blocking client.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Sequence
from typing import IO, Any, TypeVar

import httpx

from ._web_socket import WebSocketClosed, closed, connect_options, import_websockets, refused, web_socket_url

T = TypeVar("T")
OnOpen = Callable[[httpx.Response], None]
Blocks = Iterable[bytes] | AsyncIterable[bytes]

#: How much of a local file is read at a time, bytes.
BLOCK_BYTES = 1024 * 1024
#: How many chunks `merge` reads ahead of its caller.
_AHEAD = 4

Lock = asyncio.Lock
sleep = asyncio.sleep


def new_http_client(tls: ssl.SSLContext, limits: httpx.Limits) -> httpx.AsyncClient:
    return httpx.AsyncClient(verify=tls, limits=limits, http2=False, follow_redirects=False)


async def blocks_of(content: Blocks) -> AsyncGenerator[bytes, None]:
    if isinstance(content, AsyncIterable):
        async for block in content:
            yield block
    else:
        for block in content:
            yield block


async def read_blocks(file: IO[bytes]) -> AsyncGenerator[bytes, None]:
    """Reads a local file in a thread, so that a slow disk does not block the event loop."""
    while block := await asyncio.to_thread(file.read, BLOCK_BYTES):
        yield block


async def open_file(path: str) -> IO[bytes]:
    return await asyncio.to_thread(open, path, "rb")


async def merge(sources: Sequence[Callable[[OnOpen], AsyncGenerator[T, None]]]) -> AsyncGenerator[T, None]:
    """Yields the items of several streams as they come. Raises the first error. Closing it closes the streams."""
    queue: asyncio.Queue[tuple[T] | Exception | None] = asyncio.Queue(_AHEAD)

    async def read(source: AsyncGenerator[T, None]) -> None:
        try:
            async for item in source:
                await queue.put((item,))
            await queue.put(None)
        except Exception as error:
            await queue.put(error)

    tasks = [asyncio.create_task(read(source(lambda _: None))) for source in sources]
    try:
        running = len(tasks)
        while running > 0:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                running -= 1
            else:
                yield item[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class WebSocket:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def receive(self, timeout: float | None = None) -> str | bytes | None:
        """Returns the next message, or None when none came within `timeout` seconds. Raises WebSocketClosed."""
        from websockets.exceptions import ConnectionClosed

        try:
            message: str | bytes = await asyncio.wait_for(self._connection.recv(), timeout)
        except asyncio.TimeoutError:
            return None
        except ConnectionClosed as error:
            raise closed(error) from error
        return message

    async def send(self, message: str | bytes) -> None:
        """Sends a message. Raises WebSocketClosed."""
        from websockets.exceptions import ConnectionClosed

        try:
            await self._connection.send(message)
        except ConnectionClosed as error:
            raise closed(error) from error

    async def answers(self, timeout: float) -> bool:
        """Whether the service answers a ping within `timeout` seconds. Raises WebSocketClosed."""
        from websockets.exceptions import ConnectionClosed

        try:
            await asyncio.wait_for(await self._connection.ping(), timeout)
        except asyncio.TimeoutError:
            return False
        except ConnectionClosed as error:
            raise closed(error) from error
        return True

    async def aclose(self) -> None:
        await self._connection.close()


async def open_web_socket(
    base_url: str, path: str, subprotocol: str, headers: dict[str, str], user_agent: str
) -> WebSocket:
    """Opens a WebSocket. Raises SandbarError when the service refuses, and ConnectionError when it does not answer."""

    def load() -> Any:
        from websockets.asyncio import client

        return client

    library = import_websockets(load)
    from websockets.exceptions import WebSocketException

    class Connect(library.connect):  # type: ignore[misc, name-defined]
        def process_redirect(self, exc: Exception) -> Exception:
            # Do not follow redirects, which could send the key to another host. The service never redirects.
            return exc

    url = web_socket_url(base_url, path)
    try:
        # `await` makes only one attempt. An `async for` would try again and again.
        return WebSocket(await Connect(url, **connect_options(subprotocol, headers, user_agent)))
    except (OSError, WebSocketException, asyncio.TimeoutError) as error:
        raise refused(base_url, error) from error


__all__ = [
    "Blocks",
    "Lock",
    "OnOpen",
    "WebSocket",
    "WebSocketClosed",
    "blocks_of",
    "merge",
    "new_http_client",
    "open_file",
    "open_web_socket",
    "read_blocks",
    "sleep",
]
