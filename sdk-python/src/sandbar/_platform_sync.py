"""
The parts of the blocking client that cannot be made from the asynchronous client by removing `async` and `await`.
`_platform_async.py` defines the same names for the asynchronous client.
"""

from __future__ import annotations

import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import IO, Any, TypeVar

import httpx

from ._web_socket import WebSocketClosed, closed, connect_options, import_websockets, refused, web_socket_url

T = TypeVar("T")
OnOpen = Callable[[httpx.Response], None]
Blocks = Iterable[bytes]

#: How much of a local file is read at a time, bytes.
BLOCK_BYTES = 1024 * 1024
#: How many chunks `merge` reads ahead of its caller.
_AHEAD = 4
#: How often a waiting thread of `merge` checks whether it should end, seconds.
_LOOK_SEC = 0.5

Lock = threading.Lock
sleep = time.sleep


def new_http_client(tls: ssl.SSLContext, limits: httpx.Limits) -> httpx.Client:
    return httpx.Client(verify=tls, limits=limits, http2=False, follow_redirects=False)


def blocks_of(content: Blocks) -> Generator[bytes, None, None]:
    yield from content


def read_blocks(file: IO[bytes]) -> Generator[bytes, None, None]:
    while block := file.read(BLOCK_BYTES):
        yield block


def open_file(path: str) -> IO[bytes]:
    return open(path, "rb")


def merge(sources: Sequence[Callable[[OnOpen], Generator[T, None, None]]]) -> Generator[T, None, None]:
    """Yields the items of several streams as they come. Raises the first error. Closing it closes the streams."""
    items: queue.Queue[tuple[T] | Exception | None] = queue.Queue(_AHEAD)
    readers = [_Reader(source, items) for source in sources]
    for reader in readers:
        reader.start()
    try:
        running = len(readers)
        while running > 0:
            item = items.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                running -= 1
            else:
                yield item[0]
    finally:
        for reader in readers:
            reader.stop()


class _Reader(threading.Thread):
    """Reads one of the streams of `merge`. It is a daemon thread, so the program can end while it runs."""

    def __init__(self, source: Callable[[OnOpen], Generator[Any, None, None]], items: queue.Queue[Any]) -> None:
        super().__init__(name="sandbar-output", daemon=True)
        self._source = source
        self._items = items
        self._stopped = threading.Event()
        self._response: httpx.Response | None = None
        self._lock = threading.Lock()

    def run(self) -> None:
        try:
            for item in self._source(self._note_open):
                if not self._put((item,)):
                    return
            self._put(None)
        except Exception as error:
            self._put(error)

    def stop(self) -> None:
        """Ends the thread. If it waits for bytes, shuts down its connection to wake it."""
        self._stopped.set()
        with self._lock:
            if self._response is not None and not self._response.is_closed:
                _shut_down(self._response)

    def _note_open(self, response: httpx.Response) -> None:
        with self._lock:
            self._response = response
            if self._stopped.is_set():
                _shut_down(response)

    def _put(self, item: object) -> bool:
        """Puts the item into the queue as soon as there is room. Returns False if `stop` is called first."""
        while not self._stopped.is_set():
            try:
                self._items.put(item, timeout=_LOOK_SEC)
            except queue.Full:
                continue
            return True
        return False


def _shut_down(response: httpx.Response) -> None:
    stream = response.extensions.get("network_stream")
    connection = None if stream is None else stream.get_extra_info("socket")
    if connection is not None:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            # The connection is closed already.
            return


class WebSocket:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def receive(self, timeout: float | None = None) -> str | bytes | None:
        """Returns the next message, or None when none came within `timeout` seconds. Raises WebSocketClosed."""
        from websockets.exceptions import ConnectionClosed

        try:
            message: str | bytes = self._connection.recv(timeout)
        except TimeoutError:
            return None
        except ConnectionClosed as error:
            raise closed(error) from error
        return message

    def send(self, message: str | bytes) -> None:
        """Sends a message. Raises WebSocketClosed."""
        from websockets.exceptions import ConnectionClosed

        try:
            self._connection.send(message)
        except ConnectionClosed as error:
            raise closed(error) from error

    def answers(self, timeout: float) -> bool:
        """Whether the service answers a ping within `timeout` seconds. Raises WebSocketClosed."""
        from websockets.exceptions import ConnectionClosed

        try:
            return bool(self._connection.ping().wait(timeout))
        except ConnectionClosed as error:
            raise closed(error) from error

    def close(self) -> None:
        self._connection.close()


def open_web_socket(base_url: str, path: str, subprotocol: str, headers: dict[str, str], user_agent: str) -> WebSocket:
    """Opens a WebSocket. Raises SandbarError when the service refuses, and ConnectionError when it does not answer."""

    def load() -> Any:
        from websockets.sync import client

        return client

    library = import_websockets(load)
    from websockets.exceptions import WebSocketException

    url = web_socket_url(base_url, path)
    try:
        return WebSocket(library.connect(url, **connect_options(subprotocol, headers, user_agent)))
    except (OSError, WebSocketException) as error:
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
