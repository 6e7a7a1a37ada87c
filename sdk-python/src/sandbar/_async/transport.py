"""Sends the HTTP requests of all parts of the client: adds headers, turns failures into errors, and retries."""

from __future__ import annotations

import json
import platform
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar, cast

import httpx
from httpx_sse import EventSource, SSEError

from sandbar._deadline import Deadline
from sandbar._platform_async import WebSocket, new_http_client, open_web_socket, sleep
from sandbar._request import Request, error_of, not_the_service, parse_json
from sandbar._retry import RetrySchedule, is_unavailable, is_undone
from sandbar._settings import Settings
from sandbar._version import __version__
from sandbar.errors import ConnectionError, SandbarError, TimeoutError

T = TypeVar("T")

USER_AGENT = f"sandbar-sdk-python/{__version__} python/{platform.python_version()}"
#: How long it may take to open a TCP and TLS connection, seconds.
CONNECT_SEC = 10.0
#: A stream on which nothing comes for this long is broken, seconds. The service sends a heartbeat every 15 s.
SILENCE_SEC = 50.0
#: How long the service may take to accept the next part of an upload without a time limit, seconds.
UPLOAD_SILENCE_SEC = 300.0
#: The service closes an idle connection after 72 s. The client closes it first, so that it never uses a closed one.
KEEP_ALIVE_SEC = 60.0


class AsyncTransport:
    """
    Sends requests. `retry_for_sec`: how long a request is retried; 0 means never. `timeout`: the limit of a request
    with its retries, in seconds, unless the request has its own deadline.
    """

    def __init__(self, settings: Settings, *, user_agent: str | None, retry_for_sec: float, timeout: float) -> None:
        self.base_url = settings.base_url
        self.retry_for_sec = retry_for_sec
        self.timeout = timeout
        self.user_agent = USER_AGENT if user_agent is None else f"{user_agent} {USER_AGENT}"
        #: The header Authorization.
        self.authorization = f"Bearer {settings.api_key}"
        self._has_contact = False
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=KEEP_ALIVE_SEC)
        self._http = new_http_client(_tls(settings.base_url), limits)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def json(
        self,
        kind: type[T],
        request: Request,
        find_earlier: Callable[[SandbarError], Awaitable[T]] | None = None,
    ) -> T:
        """
        Returns the JSON of a successful answer. `kind` is its type. `find_earlier` is called when the answer to a
        request was lost and its retry was refused, for example a second destroy with 404. If the service has carried
        out the first request, `find_earlier` returns the result of that request; otherwise it raises the refusal.
        """

        async def attempt(deadline: Deadline) -> T:
            return cast("T", parse_json(await self._read(await self._send(request, deadline), deadline)))

        return await self._retry(request, attempt, find_earlier)

    async def run(
        self, request: Request, find_earlier: Callable[[SandbarError], Awaitable[None]] | None = None
    ) -> None:
        """Sends a request whose answer has no body."""

        async def attempt(deadline: Deadline) -> None:
            await self._read(await self._send(request, deadline), deadline)

        await self._retry(request, attempt, find_earlier)

    async def fetch(self, request: Request) -> httpx.Response:
        """Returns a successful answer with its body read."""

        async def attempt(deadline: Deadline) -> httpx.Response:
            return await self._read(await self._send(request, deadline), deadline)

        return await self._retry(request, attempt)

    async def open(self, request: Request) -> httpx.Response:
        """Returns a successful answer with its body unread. The caller reads it with `bytes_of` or `events_of`."""

        async def attempt(deadline: Deadline) -> httpx.Response:
            return await self._send(request, deadline, silence_sec=SILENCE_SEC)

        return await self._retry(request, attempt)

    async def bytes_of(self, response: httpx.Response, deadline: Deadline) -> AsyncGenerator[bytes, None]:
        """Yields the body of an open answer. Raises ConnectionError when the connection breaks, and TimeoutError."""
        try:
            async for chunk in response.aiter_bytes():
                if deadline.is_over:
                    raise self._timed_out(deadline)
                yield chunk
        except httpx.RequestError as error:
            raise self._failure(error, deadline) from error
        finally:
            await response.aclose()

    async def events_of(self, response: httpx.Response, deadline: Deadline) -> AsyncGenerator[Any, None]:
        """The JSON of each server-sent event of an open answer. Raises like `bytes_of`."""
        try:
            async for event in EventSource(response).aiter_sse():
                if deadline.is_over:
                    raise self._timed_out(deadline)
                if event.data != "":
                    yield json.loads(event.data)
        except httpx.RequestError as error:
            raise self._failure(error, deadline) from error
        except SSEError as error:
            raise not_the_service(response.status_code) from error
        finally:
            await response.aclose()

    async def web_socket(self, path: str, subprotocol: str, *, has_ticket: bool = False) -> WebSocket:
        """Opens a WebSocket. `has_ticket`: the path contains a ticket, so the API key is not sent."""
        headers = {} if has_ticket else {"authorization": self.authorization}
        return await open_web_socket(self.base_url, path, subprotocol, headers, self.user_agent)

    async def _retry(
        self,
        request: Request,
        attempt: Callable[[Deadline], Awaitable[T]],
        find_earlier: Callable[[SandbarError], Awaitable[T]] | None = None,
    ) -> T:
        deadline = request.deadline
        if not deadline.is_set and request.content is None:
            # Uploads have no default limit, because their duration depends on their size.
            deadline = Deadline(self.timeout)
        retry_for_sec = 0 if request.is_sent_once else self.retry_for_sec
        schedule = RetrySchedule(retry_for_sec, is_repeatable=request.may_repeat)
        may_be_done = False
        while True:
            try:
                return await attempt(deadline)
            except (SandbarError, ConnectionError) as error:
                pause_sec = schedule.pause_after(error, has_contact=self._has_contact)
                if pause_sec is None:
                    is_refusal = isinstance(error, SandbarError) and not is_unavailable(error)
                    if find_earlier is None or not may_be_done or not is_refusal:
                        raise
                    refusal = cast("SandbarError", error)
                    break
                if is_unavailable(error) and not is_undone(error, request.undone_codes):
                    may_be_done = True
                await sleep(deadline.limit(pause_sec))
                if deadline.is_over:
                    raise self._timed_out(deadline, f"; the last attempt: {error}") from error
        return await find_earlier(refusal)

    async def _send(self, request: Request, deadline: Deadline, silence_sec: float | None = None) -> httpx.Response:
        """One attempt. Returns a successful answer with its body unread."""
        content, headers = request.content_and_headers()
        if silence_sec is None:
            limit_sec = deadline.limit(deadline.seconds or UPLOAD_SILENCE_SEC)
        else:
            # Limit each read of the stream. Ignore the client's `timeout`, which may be shorter than the pause between
            # two heartbeats.
            limit_sec = request.deadline.limit(silence_sec)
        message = self._http.build_request(
            request.method,
            f"{self.base_url}{request.target}",
            content=content,
            headers={
                "authorization": self.authorization,
                "user-agent": self.user_agent,
                "accept": "application/json",
                # Ask for uncompressed bytes, because a broken download continues at a byte position in the file.
                **({} if silence_sec is None else {"accept-encoding": "identity"}),
                **headers,
            },
            timeout=httpx.Timeout(limit_sec, connect=deadline.limit(min(limit_sec, CONNECT_SEC))),
        )
        try:
            response = await self._http.send(message, stream=True)
        except (httpx.LocalProtocolError, httpx.UnsupportedProtocol):
            # The caller's request is not valid HTTP, for example a header with a line break. A retry would not help.
            raise
        except httpx.RequestError as error:
            raise self._failure(error, deadline) from error
        self._has_contact = True
        if response.is_success:
            return response
        try:
            body = (await self._read(response, deadline)).content
        except TimeoutError:
            raise
        except ConnectionError:
            # The body of the error could not be read. Make the error from the status alone.
            body = b""
        raise error_of(response.status_code, response.reason_phrase, response.headers, body)

    async def _read(self, response: httpx.Response, deadline: Deadline) -> httpx.Response:
        """Reads the body of an open answer, and returns the answer with its body."""
        blocks = [chunk async for chunk in self.bytes_of(response, deadline)]
        # Drop these headers, because the body is decoded and complete now.
        gone = ("content-encoding", "content-length", "transfer-encoding")
        return httpx.Response(
            response.status_code,
            headers=[(name, value) for name, value in response.headers.multi_items() if name not in gone],
            content=b"".join(blocks),
            request=response.request,
        )

    def _failure(self, error: httpx.RequestError, deadline: Deadline) -> ConnectionError:
        if deadline.is_over:
            return self._timed_out(deadline)
        reason = str(error) or type(error).__name__
        is_unsent = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
        return ConnectionError(f"the service does not answer at {self.base_url} ({reason})", is_unsent=is_unsent)

    def _timed_out(self, deadline: Deadline, more: str = "") -> TimeoutError:
        return TimeoutError(f"the call to {self.base_url} took longer than {deadline.seconds:g} s{more}")


def _tls(base_url: str) -> ssl.SSLContext:
    # Load the root certificates only if they are needed, because that takes 20 ms.
    return httpx.create_ssl_context() if base_url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
