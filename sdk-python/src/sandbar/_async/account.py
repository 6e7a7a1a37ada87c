"""The account that the key belongs to: its record, quotas and API keys, and the images that it may use."""

from __future__ import annotations

from typing_extensions import Unpack

from sandbar._async.files import accept_not_found
from sandbar._async.transport import AsyncTransport
from sandbar._deadline import Deadline
from sandbar._paths import part
from sandbar._request import Request
from sandbar.models import Account as AccountRecord
from sandbar.models import ApiKey, ApiKeyCreate, ApiKeyList, Image, ImageList, NewApiKey
from sandbar.models import Quotas as QuotasRecord


class AsyncAccount:
    """The record of the account."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self, *, timeout: float | None = None) -> AccountRecord:
        return await self._transport.json(AccountRecord, Request("GET", "/v1/account", deadline=Deadline(timeout)))


class AsyncQuotas:
    """The quotas of the account."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self, *, timeout: float | None = None) -> QuotasRecord:
        """How much of each quota the account uses, and its limits: machines, vcpus, memory, storage and volumes."""
        return await self._transport.json(QuotasRecord, Request("GET", "/v1/quotas", deadline=Deadline(timeout)))


class AsyncImages:
    """The images that the account may use."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, *, timeout: float | None = None) -> list[Image]:
        """The images from which machines are created. A machine's `stack` is the name of its image."""
        request = Request("GET", "/v1/images", deadline=Deadline(timeout))
        return (await self._transport.json(ImageList, request))["images"]


class AsyncApiKeys:
    """The service manages keys for a dashboard session only, so with an API key each call is a ForbiddenError."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, *, timeout: float | None = None, **spec: Unpack[ApiKeyCreate]) -> NewApiKey:
        """
        Makes a key. Only this answer shows it. The call is not repeated after a lost answer, because that would make a
        second key.
        """
        request = Request("POST", "/v1/api-keys", body=spec, deadline=Deadline(timeout))
        return await self._transport.json(NewApiKey, request)

    async def delete(self, id: str, *, timeout: float | None = None) -> None:
        """Revokes the key. It is refused from the next request on."""
        request = Request("DELETE", f"/v1/api-keys/{part(id)}", deadline=Deadline(timeout))
        await self._transport.run(request, accept_not_found)

    async def list(self, *, timeout: float | None = None) -> list[ApiKey]:
        request = Request("GET", "/v1/api-keys", deadline=Deadline(timeout))
        return (await self._transport.json(ApiKeyList, request))["api_keys"]
