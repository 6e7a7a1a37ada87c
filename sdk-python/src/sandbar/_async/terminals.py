"""Terminals: open a shell in a machine or join one that runs, list them, and end one."""

from __future__ import annotations

from typing_extensions import Unpack

from sandbar._async.files import accept_not_found
from sandbar._async.terminal_connection import AsyncTerminalConnection
from sandbar._async.transport import AsyncTransport
from sandbar._deadline import Deadline
from sandbar._options import OpenTerminal
from sandbar._paths import machine_path, part
from sandbar._request import Request
from sandbar.models import Terminal, TerminalList


class AsyncTerminals:
    """The terminals of machines."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def open(
        self, machine_id: str, *, timeout: float | None = None, **options: Unpack[OpenTerminal]
    ) -> AsyncTerminalConnection:
        """
        Opens a terminal and returns when it is connected. Without `command` it runs a login shell. With `terminal_id`
        it joins a terminal that runs, and first gets the last 256 KiB of its output. Needs the extra
        `sandbar-sdk[terminal]`.
        """
        return await AsyncTerminalConnection.open(self._transport, machine_id, options, Deadline(timeout))

    async def end(self, machine_id: str, terminal_id: str, *, timeout: float | None = None) -> None:
        """Ends a terminal and its processes."""
        path = f"{machine_path(machine_id)}/terminals/{part(terminal_id)}"
        await self._transport.run(Request("DELETE", path, deadline=Deadline(timeout)), accept_not_found)

    async def list(self, machine_id: str, *, timeout: float | None = None) -> list[Terminal]:
        """The terminals that are open in a running machine, oldest first."""
        request = Request("GET", f"{machine_path(machine_id)}/terminals", deadline=Deadline(timeout))
        return (await self._transport.json(TerminalList, request))["terminals"]
