"""The client of the whole API. Arguments and results have the field names and types of the API."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

import httpx

from sandbar._async.account import AsyncAccount, AsyncApiKeys, AsyncImages, AsyncQuotas
from sandbar._async.activity import AsyncActivity
from sandbar._async.billing import AsyncBilling
from sandbar._async.execs import AsyncExecs
from sandbar._async.files import AsyncFiles
from sandbar._async.machines import AsyncMachines
from sandbar._async.ports import AsyncPorts
from sandbar._async.snapshots import AsyncSnapshots
from sandbar._async.terminals import AsyncTerminals
from sandbar._async.transport import AsyncTransport
from sandbar._async.volumes import AsyncVolumes
from sandbar._deadline import Deadline
from sandbar._request import Query, Request
from sandbar._settings import resolve_settings

if TYPE_CHECKING:
    from sandbar._async.sandbox import AsyncSandbox

RETRY_FOR_SEC = 60.0
TIMEOUT_SEC = 120.0


class AsyncClient:
    """
    A client of the service. Its connections are kept open and shared by all calls, so use one client for many calls,
    and close it, or use it in a `with` block.

    A call raises SandbarError when the service answers with an error, ConnectionError when it does not answer, and
    TimeoutError when `timeout` is over.
    """

    base_url: str

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        user_agent: str | None = None,
        retry_for_sec: float = RETRY_FOR_SEC,
        timeout: float = TIMEOUT_SEC,
    ) -> None:
        """
        `base_url`, `api_key`: the default is `SANDBAR_BASE_URL` and `SANDBAR_API_KEY`, else the credentials file of
        `sandbar login`, else the credentials file of the service on this computer. Raises ConfigurationError when one
        of the two is missing, empty or malformed.

        `user_agent`: the name of the calling program, put before the client's own User-Agent.

        `retry_for_sec`: how long a call is repeated after a broken connection, a 429 or a 503, in seconds from the
        first failure. 0: never.

        `timeout`: the limit of a call with its retries, seconds. The argument `timeout` of a call replaces it. Streams,
        uploads, downloads and calls that wait for the end of a job have no limit, unless the call gives one. A stream
        or download on which nothing comes for 50 s counts as broken.
        """
        settings = resolve_settings(base_url, api_key)
        transport = AsyncTransport(settings, user_agent=user_agent, retry_for_sec=retry_for_sec, timeout=timeout)
        self._transport = transport
        self.base_url = transport.base_url
        self.machines = AsyncMachines(transport)
        self.execs = AsyncExecs(transport)
        self.terminals = AsyncTerminals(transport)
        self.volumes = AsyncVolumes(transport)
        self.snapshots = AsyncSnapshots(transport)
        self.images = AsyncImages(transport)
        self.api_keys = AsyncApiKeys(transport)
        self.quotas = AsyncQuotas(transport)
        self.activity = AsyncActivity(transport)
        self.billing = AsyncBilling(transport)
        self.account = AsyncAccount(transport)

    def files(self, machine_id: str) -> AsyncFiles:
        """The files of a machine. Sends nothing."""
        return AsyncFiles(self._transport, machine_id)

    def ports(self, machine_id: str) -> AsyncPorts:
        """The ports of a machine. Sends nothing."""
        return AsyncPorts(self._transport, machine_id)

    def sandbox(self, id: str) -> AsyncSandbox:
        """The machine with this id. Sends nothing."""
        from sandbar._async.sandbox import AsyncSandbox

        return AsyncSandbox(self, id)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> httpx.Response:
        """Sends any API request, with the key and retries: `client.request("GET", "/v1/images").json()`."""
        request = Request(
            method.upper(), path, query=query or {}, body=body, headers=headers or {}, deadline=Deadline(timeout)
        )
        return await self._transport.fetch(request)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._transport.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
