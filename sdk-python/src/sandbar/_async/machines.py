"""Machines: create, find, change, stop, start and destroy them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Literal

from typing_extensions import Unpack

from sandbar._async.transport import AsyncTransport
from sandbar._deadline import Deadline
from sandbar._paths import machine_path
from sandbar._request import Request
from sandbar.errors import SandbarError
from sandbar.models import Machine, MachineCreate, MachineList, MachineUpdate

MachineState = Literal["pending", "provisioning", "running", "stopped", "error", "destroyed"]


class AsyncMachines:
    """The machines of the account."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self, *, idempotency_key: str | None = None, timeout: float | None = None, **spec: Unpack[MachineCreate]
    ) -> Machine:
        """
        Creates a machine and returns when it runs. Calls with the same `idempotency_key` (1 to 255 printable
        characters) within 24 hours return the same machine. By default each call makes a new key, so its retries never
        create a second machine.
        """
        return await self._transport.json(
            Machine,
            Request(
                "POST",
                "/v1/machines",
                body=spec,
                headers={"idempotency-key": idempotency_key or str(uuid.uuid4())},
                is_repeatable=True,
                deadline=Deadline(timeout),
            ),
        )

    async def get(self, id: str, *, timeout: float | None = None) -> Machine:
        return await self._transport.json(Machine, Request("GET", machine_path(id), deadline=Deadline(timeout)))

    async def update(self, id: str, *, timeout: float | None = None, **changes: Unpack[MachineUpdate]) -> Machine:
        """
        Changes the given fields and keeps the others. `metadata` replaces all metadata of the machine. `expires_in_sec`
        counts from now; None means never.
        """
        request = Request("PATCH", machine_path(id), body=changes, deadline=Deadline(timeout))
        return await self._transport.json(Machine, request)

    async def stop(self, id: str, *, timeout: float | None = None) -> Machine:
        """Stops the machine and keeps its disk."""
        return await self._post(id, "stop", timeout)

    async def start(self, id: str, *, timeout: float | None = None) -> Machine:
        """Starts a stopped machine and returns when it runs."""
        return await self._post(id, "start", timeout)

    async def destroy(
        self,
        id: str,
        *,
        preserve_storage: bool | None = None,
        delete_snapshots: bool | None = None,
        timeout: float | None = None,
    ) -> Machine:
        """
        Destroys the machine. `preserve_storage` keeps the root disk as a detached volume; its id is in
        `root_volume_id` of the returned machine. If the machine has snapshots, raises ConflictError unless
        `delete_snapshots` is true.
        """
        deadline = Deadline(timeout)

        async def find_earlier(refusal: SandbarError) -> Machine:
            # The service answers a second destroy with 404, but it still shows the destroyed machine.
            if refusal.code == "not_found":
                shown = Request("GET", machine_path(id), deadline=deadline)
                machine = await self._transport.json(Machine, shown)
                if machine["state"] == "destroyed":
                    return machine
            raise refusal

        query = {"preserve_storage": preserve_storage, "delete_snapshots": delete_snapshots}
        request = Request("DELETE", machine_path(id), query=query, deadline=deadline)
        return await self._transport.json(Machine, request, find_earlier)

    async def list(
        self,
        *,
        state: MachineState | None = None,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> list[Machine]:
        """
        Returns the machines that match the filter, newest first. `metadata`: only machines whose metadata has these
        values. Destroyed machines are left out unless `state` asks for them.
        """
        by_key = {f"metadata.{key}": value for key, value in (metadata or {}).items()}
        query = {"state": state, "name": name, **by_key}
        request = Request("GET", "/v1/machines", query=query, deadline=Deadline(timeout))
        return (await self._transport.json(MachineList, request))["machines"]

    async def _post(self, id: str, action: str, timeout: float | None) -> Machine:
        path = f"{machine_path(id)}/{action}"
        request = Request("POST", path, is_repeatable=True, deadline=Deadline(timeout))
        return await self._transport.json(Machine, request)
