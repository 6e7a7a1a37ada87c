"""Volumes: disks that outlive machines. Create and find them, attach them to machines, detach and delete them."""

from __future__ import annotations

import uuid
from typing import Literal

from typing_extensions import Unpack

from sandbar._async.files import accept_not_found
from sandbar._async.transport import AsyncTransport
from sandbar._deadline import Deadline
from sandbar._paths import part
from sandbar._request import Request
from sandbar.models import Volume, VolumeAttach, VolumeCreate, VolumeList


class AsyncVolumes:
    """The volumes of the account."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self, *, idempotency_key: str | None = None, timeout: float | None = None, **spec: Unpack[VolumeCreate]
    ) -> Volume:
        """Creates an empty data volume; `size_gb` is in GiB."""
        request = Request(
            "POST",
            "/v1/volumes",
            body=spec,
            headers={"idempotency-key": idempotency_key or str(uuid.uuid4())},
            is_repeatable=True,
            deadline=Deadline(timeout),
        )
        return await self._transport.json(Volume, request)

    async def get(self, id: str, *, timeout: float | None = None) -> Volume:
        return await self._transport.json(Volume, Request("GET", _path(id), deadline=Deadline(timeout)))

    async def attach(self, id: str, *, timeout: float | None = None, **target: Unpack[VolumeAttach]) -> Volume:
        """
        Attaches the volume to a machine on the same host. If the machine runs, this returns once the volume is mounted
        in it. The default `mount_path` is `/mnt/<volume id>`.
        """
        path = f"{_path(id)}/attach"
        request = Request("POST", path, body=target, is_repeatable=True, deadline=Deadline(timeout))
        return await self._transport.json(Volume, request)

    async def detach(self, id: str, *, timeout: float | None = None) -> Volume:
        """Unmounts and detaches the volume. While a process uses it, raises a ConflictError that names the process."""
        request = Request("POST", f"{_path(id)}/detach", is_repeatable=True, deadline=Deadline(timeout))
        return await self._transport.json(Volume, request)

    async def delete(self, id: str, *, timeout: float | None = None) -> None:
        """Deletes the volume and its data for good."""
        await self._transport.run(Request("DELETE", _path(id), deadline=Deadline(timeout)), accept_not_found)

    async def list(
        self,
        *,
        kind: Literal["data", "root"] | None = None,
        state: Literal["available", "attached", "error"] | None = None,
        timeout: float | None = None,
    ) -> list[Volume]:
        """The volumes that match the filter, newest first."""
        request = Request("GET", "/v1/volumes", query={"kind": kind, "state": state}, deadline=Deadline(timeout))
        return (await self._transport.json(VolumeList, request))["volumes"]


def _path(id: str) -> str:
    return f"/v1/volumes/{part(id)}"
