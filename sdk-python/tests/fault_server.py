"""An HTTP server that gives the good and bad answers that a test prescribes, each on its own connection."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType


@dataclass
class Received:
    """A request that the server got."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        value: dict[str, object] = json.loads(self.body)
        return value


#: A function that sends an answer on the connection. The server then closes the connection.
Answer = Callable[[socket.socket], None]


@dataclass
class FaultServer:
    """Gives its answers one after the other. A request after the last answer gets an error with status 599."""

    answers: list[Answer] = field(default_factory=list)
    requests: list[Received] = field(default_factory=list)

    def __enter__(self) -> FaultServer:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._left = iter(self.answers)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Shut down first, because a close alone would not wake the thread that accepts connections.
        _shut_down(self._listener)
        self._listener.close()
        with self._lock:
            for connection in self._open:
                _shut_down(connection)

    @property
    def open_connections(self) -> int:
        with self._lock:
            return len(self._open)

    def choose(self, target: str) -> Answer:
        """The answer to the next request, which is for `target`."""
        return next(self._left, _no_answer)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            request = _read_request(connection)
            if request is None:
                return
            with self._lock:
                self.requests.append(request)
                answer = self.choose(request.target)
            answer(connection)
        except OSError:
            # The client has closed the connection.
            return
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()


def _read_request(connection: socket.socket) -> Received | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    is_chunked = headers.get("transfer-encoding") == "chunked"
    length = int(headers.get("content-length", 0))
    while not body.endswith(b"0\r\n\r\n") if is_chunked else len(body) < length:
        piece = connection.recv(65536)
        if not piece:
            return None
        body += piece
    return Received(method, target, headers, _unchunk(body) if is_chunked else body)


def _unchunk(body: bytes) -> bytes:
    parts: list[bytes] = []
    while True:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            return b"".join(parts)
        parts.append(body[:length])
        body = body[length + 2 :]


def _no_answer(connection: socket.socket) -> None:
    status(599, {"detail": "the test prescribes no further answer", "code": "no_answer"})(connection)


def _shut_down(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def raw(data: bytes) -> Answer:
    """Answers with exactly these bytes, and then closes the connection."""
    return lambda connection: connection.sendall(data)


def head(code: int, headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {code} Reason\r\nconnection: close\r\n{lines}\r\n".encode()


def status(code: int, body: object = None, headers: dict[str, str] | None = None) -> Answer:
    """Answers with this status and JSON body."""
    content = json.dumps({} if body is None else body).encode()
    length = {"content-length": str(len(content)), "content-type": "application/json"}
    return raw(head(code, {**length, **(headers or {})}) + content)


def refusal(code: int, name: str, **headers: str) -> Answer:
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return status(code, {"detail": f"the detail of {name}", "code": name}, told)


def content(data: bytes, sent: int | None = None, code: int = 200, **headers: str) -> Answer:
    """Announces the length of `data` as content-length, but sends only the first `sent` bytes."""
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return raw(head(code, {"content-length": str(len(data)), **told}) + data[:sent])


def events(*items: object, then: Answer | None = None) -> Answer:
    """Answers with server-sent events, then calls `then` if given, and closes the connection."""

    def answer(connection: socket.socket) -> None:
        text = "".join(f"data: {json.dumps(item)}\n\n" for item in items)
        connection.sendall(head(200, {"content-type": "text/event-stream"}) + text.encode())
        if then is not None:
            then(connection)

    return answer


def reset(connection: socket.socket) -> None:
    """Resets the connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def stall(connection: socket.socket) -> None:
    """Sends nothing more, and keeps the connection until the client closes it."""
    connection.settimeout(60)
    while connection.recv(65536):
        pass


def trickle(connection: socket.socket) -> None:
    """Sends a long body byte by byte."""
    connection.sendall(head(200, {"content-length": "100000"}))
    for _ in range(600):
        connection.sendall(b" ")
        time.sleep(0.1)
