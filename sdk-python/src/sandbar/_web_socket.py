"""
Code for the WebSockets of both clients. The library `websockets` is an optional dependency, so it is imported only when
it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._request import error_of
from .errors import ConnectionError, SandbarError

#: How long to wait for the service's answer when the client closes a connection, seconds.
CLOSE_SEC = 2.0
#: How long the opening of a connection may take, seconds.
OPEN_SEC = 30.0


class WebSocketClosed(Exception):
    """The connection was closed, or broke (code 1006)."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason or 'the connection broke'} ({code})")
        self.code = code
        self.reason = reason


def connect_options(subprotocol: str, headers: dict[str, str], user_agent: str) -> dict[str, Any]:
    return {
        "subprotocols": [subprotocol],
        "additional_headers": headers,
        "user_agent_header": user_agent,
        "compression": None,
        "open_timeout": OPEN_SEC,
        "close_timeout": CLOSE_SEC,
        # No automatic pings: while the caller does not read, the library receives no pongs either, and would close the
        # connection. Instead, `read` of a terminal sends a ping when nothing arrives.
        "ping_interval": None,
        "max_size": None,
    }


def web_socket_url(base_url: str, path: str) -> str:
    return f"ws{base_url.removeprefix('http')}{path}"


def import_websockets(load: Callable[[], Any]) -> Any:
    try:
        return load()
    except ImportError as error:
        raise ImportError('terminals and ports need more: pip install "sandbar-sdk[terminal]"') from error


def closed(error: Any) -> WebSocketClosed:
    """Converts the library's ConnectionClosed."""
    received = error.rcvd
    return WebSocketClosed(1006, "") if received is None else WebSocketClosed(received.code, received.reason)


def refused(base_url: str, error: Exception) -> SandbarError | ConnectionError:
    """Returns the error for a connection that could not be opened."""
    response = getattr(error, "response", None)
    if response is not None:
        return error_of(response.status_code, response.reason_phrase, response.headers, response.body or b"")
    return ConnectionError(f"the service does not answer at {base_url} (WebSocket: {error})")
