"""A TCP proxy that cuts its connections after a given number of bytes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from types import TracebackType
from urllib.parse import urlsplit


class CuttingProxy:
    """
    Passes bytes between its clients and the service at `target`. Each time when the total of answered bytes reaches a
    number in `cut_after`, it breaks all connections.
    """

    def __init__(self, target: str, cut_after: Sequence[int]) -> None:
        parts = urlsplit(target)
        self._service = (parts.hostname or "", parts.port or 80)
        self._left = sorted(cut_after)
        self._passed = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.cuts = 0

    def __enter__(self) -> CuttingProxy:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _shut_down(self._listener)
        self._listener.close()
        self._cut_all()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                service = socket.create_connection(self._service)
            except OSError:
                return
            with self._lock:
                self._open |= {client, service}
            threading.Thread(target=self._pass, args=(client, service, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(service, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        try:
            while data := source.recv(65536):
                if is_answer and self._is_due(len(data)):
                    # Send only half of the bytes, to cut an event in its middle.
                    target.sendall(data[: len(data) // 2])
                    self._cut_all()
                    return
                target.sendall(data)
        except OSError:
            return
        finally:
            for end in (source, target):
                _shut_down(end)
            with self._lock:
                self._open.discard(source)
            # The thread of the other direction closes the other socket.
            source.close()

    def _is_due(self, count: int) -> bool:
        with self._lock:
            self._passed += count
            if not self._left or self._passed < self._left[0]:
                return False
            self._left.pop(0)
            self.cuts += 1
            return True

    def _cut_all(self) -> None:
        with self._lock:
            for end in self._open:
                _shut_down(end)


def _shut_down(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
