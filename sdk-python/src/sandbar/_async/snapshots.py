"""
Snapshots: take, find, restore and delete them. `machines.create(snapshot_id=…)` creates a machine from a snapshot.
"""

from __future__ import annotations

import uuid
from typing import Literal

from typing_extensions import Unpack

from sandbar._async.files import accept_not_found
from sandbar._async.transport import AsyncTransport
from sandbar._deadline import Deadline
from sandbar._paths import machine_path, part
from sandbar._request import Request
from sandbar.models import Machine, Snapshot, SnapshotCreate, SnapshotList


class AsyncSnapshots:
    """The snapshots of the account."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        machine_id: str,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
        **spec: Unpack[SnapshotCreate],
    ) -> Snapshot:
        """
        Takes a snapshot of a machine's disk, and with `memory` also of its processes. Returns when the snapshot is
        ready.
        """
        request = Request(
            "POST",
            f"{machine_path(machine_id)}/snapshots",
            body=spec,
            headers={"idempotency-key": idempotency_key or str(uuid.uuid4())},
            is_repeatable=True,
            deadline=Deadline(timeout),
        )
        return await self._transport.json(Snapshot, request)

    async def get(self, id: str, *, timeout: float | None = None) -> Snapshot:
        return await self._transport.json(Snapshot, Request("GET", _path(id), deadline=Deadline(timeout)))

    async def restore(self, id: str, *, timeout: float | None = None) -> Machine:
        """Sets the machine's disk back to the snapshot; later writes are lost. A running machine reboots."""
        request = Request("POST", f"{_path(id)}/restore", is_repeatable=True, deadline=Deadline(timeout))
        return await self._transport.json(Machine, request)

    async def delete(self, id: str, *, timeout: float | None = None) -> None:
        """Deletes the snapshot. Machines that were created from it are not affected."""
        await self._transport.run(Request("DELETE", _path(id), deadline=Deadline(timeout)), accept_not_found)

    async def list(
        self,
        *,
        kind: Literal["disk", "memory"] | None = None,
        state: Literal["ready", "error"] | None = None,
        machine_id: str | None = None,
        timeout: float | None = None,
    ) -> list[Snapshot]:
        """The snapshots that match the filter, newest first."""
        path = "/v1/snapshots" if machine_id is None else f"{machine_path(machine_id)}/snapshots"
        request = Request("GET", path, query={"kind": kind, "state": state}, deadline=Deadline(timeout))
        return (await self._transport.json(SnapshotList, request))["snapshots"]


def _path(id: str) -> str:
    return f"/v1/snapshots/{part(id)}"
