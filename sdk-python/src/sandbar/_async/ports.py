"""Ports of a machine: lists open ports, sets who may use a port, makes addresses for browsers, opens connections."""

from __future__ import annotations

from typing import Literal

from sandbar._async.port_connection import PORT_PROTOCOL, AsyncPortConnection
from sandbar._async.transport import AsyncTransport
from sandbar._deadline import Deadline
from sandbar._paths import machine_path
from sandbar._request import Request
from sandbar.models import Port, PortList, PortToken


class AsyncPorts:
    """The ports of one machine."""

    def __init__(self, transport: AsyncTransport, machine_id: str) -> None:
        self._transport = transport
        self._path = f"{machine_path(machine_id)}/ports"

    async def url(self, port: int, *, expires_in_sec: int | None = None, timeout: float | None = None) -> str:
        """
        Returns an address that opens the port in a browser. It contains a token, so it also works for a private port.
        Whoever has the address may use the port until the token expires, after `expires_in_sec` (default 3600).
        """
        return (await self.token(port, expires_in_sec=expires_in_sec, timeout=timeout))["url"]

    async def token(self, port: int, *, expires_in_sec: int | None = None, timeout: float | None = None) -> PortToken:
        """Returns a token that is valid only for this port. Programs send it in the header X-Sandbar-Key."""
        body = {} if expires_in_sec is None else {"expires_in_sec": expires_in_sec}
        path = f"{self._path}/{port}/token"
        request = Request("POST", path, body=body, is_repeatable=True, deadline=Deadline(timeout))
        return await self._transport.json(PortToken, request)

    async def set_access(
        self, port: int, access: Literal["public", "private"], *, timeout: float | None = None
    ) -> Port:
        """Makes the port public, so that everybody may use it, or private. No program has to listen on it yet."""
        request = Request("PUT", f"{self._path}/{port}", body={"access": access}, deadline=Deadline(timeout))
        return await self._transport.json(Port, request)

    async def connect(self, port: int) -> AsyncPortConnection:
        """
        Opens a TCP connection to the port, for any protocol. Raises PortNotOpenError when no program listens there.
        Needs the extra `sandbar-sdk[terminal]`.
        """
        socket = await self._transport.web_socket(f"{self._path}/{port}/connect", PORT_PROTOCOL)
        return AsyncPortConnection(socket, self._transport.base_url)

    async def list(self, *, timeout: float | None = None) -> list[Port]:
        """The ports on which programs listen now, whatever their access."""
        request = Request("GET", self._path, deadline=Deadline(timeout))
        return (await self._transport.json(PortList, request))["ports"]
