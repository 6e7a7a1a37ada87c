"""One machine, as a program uses it: run commands in it, and read and write its files."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from types import TracebackType

from typing_extensions import Unpack

from sandbar._async.client import AsyncClient
from sandbar._async.files import AsyncFiles
from sandbar._async.job import AsyncJob
from sandbar._async.machines import MachineState
from sandbar._async.ports import AsyncPorts
from sandbar._async.terminal_connection import AsyncTerminalConnection
from sandbar._deadline import Deadline
from sandbar._error_codes import ConflictError, NotFoundError
from sandbar._options import ClientOptions, ExecOptions, OpenTerminal, SandboxChanges
from sandbar.models import Exec, ExecCreate, Machine, MachineCreate, Snapshot
from sandbar.results import ExecResult, exec_result

#: The most bytes of stdin in the request that starts a command. Later requests send the rest.
STDIN_BYTES = 512 * 1024


class CreateOptions(MachineCreate, ClientOptions):
    """The fields of a new machine, and the settings of the client that is made for it."""


class AsyncSandbox:
    """
    A machine. `create` makes a new machine and `connect` finds an existing one. Without `client` both make a new
    client; they accept the arguments of AsyncClient for it. At the end of a `with` block the machine is destroyed.
    """

    id: str
    client: AsyncClient
    files: AsyncFiles
    ports: AsyncPorts

    def __init__(self, client: AsyncClient, id: str, *, owns_client: bool = False) -> None:
        """Sends nothing. See `create` and `connect`."""
        self.id = id
        self.client = client
        self.files = client.files(id)
        self.ports = client.ports(id)
        self._owns_client = owns_client

    @classmethod
    async def create(
        cls,
        *,
        client: AsyncClient | None = None,
        idempotency_key: str | None = None,
        timeout: float | None = None,
        **options: Unpack[CreateOptions],
    ) -> AsyncSandbox:
        """Creates a machine and returns when it runs."""
        settings, spec = _split(options)
        used = AsyncClient(**settings) if client is None else client
        try:
            machine = await used.machines.create(idempotency_key=idempotency_key, timeout=timeout, **spec)
        except BaseException:
            if client is None:
                await used.aclose()
            raise
        return cls(used, machine["id"], owns_client=client is None)

    @classmethod
    async def connect(
        cls,
        id: str,
        *,
        client: AsyncClient | None = None,
        timeout: float | None = None,
        **settings: Unpack[ClientOptions],
    ) -> AsyncSandbox:
        """The machine with this id. Raises NotFoundError when it does not exist or is destroyed."""
        used = AsyncClient(**settings) if client is None else client
        try:
            machine = await used.machines.get(id, timeout=timeout)
            if machine["state"] == "destroyed":
                raise NotFoundError(f"the machine {id} is destroyed", status=404, code="not_found")
        except BaseException:
            if client is None:
                await used.aclose()
            raise
        return cls(used, machine["id"], owns_client=client is None)

    async def info(self, *, timeout: float | None = None) -> Machine:
        """The machine as it is now."""
        return await self.client.machines.get(self.id, timeout=timeout)

    async def exec(
        self, command: str | Sequence[str], *, timeout: float | None = None, **options: Unpack[ExecOptions]
    ) -> ExecResult:
        """
        Runs a command to its end. `/bin/sh -c` runs a text; a sequence is run directly. When the command fails, this
        returns normally: see `exit_code`. A short command takes one request. `timeout_sec` ends the command; `timeout`
        (seconds) ends only this call. Raises JobLostError when the machine stopped or died while the command ran.
        """
        deadline = Deadline(timeout)
        create, rest = _command(command, options)
        if rest:
            create["stdin_open"] = True
            job = await self.client.execs.start_job(self.id, timeout=timeout, **create)
            try:
                await job.stdin.write(rest, timeout=_left(deadline))
                await job.stdin.close(timeout=_left(deadline))
            except ConflictError:
                # The command ended, or closed its stdin, before it read everything. Its result shows whether it failed.
                pass
            return await job.result(timeout=_left(deadline))
        result = await self.client.execs.run(self.id, timeout=timeout, **create)
        return exec_result(result.job, result.stdout, result.stderr)

    async def start(
        self,
        command: str | Sequence[str],
        *,
        stdin_open: bool = False,
        timeout: float | None = None,
        **options: Unpack[ExecOptions],
    ) -> AsyncJob:
        """
        Starts a command and returns its job. With `stdin_open`, `job.stdin` writes to the command until it is closed.
        """
        create, rest = _command(command, options)
        if rest:
            raise ValueError(f"stdin is longer than {STDIN_BYTES} bytes: use stdin_open=True and job.stdin.write")
        if stdin_open:
            create["stdin_open"] = True
        return await self.client.execs.start_job(self.id, timeout=timeout, **create)

    def job(self, id: str) -> AsyncJob:
        """A handle of a job that was started before. Sends nothing."""
        return self.client.execs.job(self.id, id)

    async def terminal(
        self, *, timeout: float | None = None, **options: Unpack[OpenTerminal]
    ) -> AsyncTerminalConnection:
        """Opens a terminal, or joins one that runs. Needs the extra `sandbar-sdk[terminal]`."""
        return await self.client.terminals.open(self.id, timeout=timeout, **options)

    async def snapshot(
        self, *, name: str | None = None, memory: bool | None = None, timeout: float | None = None
    ) -> Snapshot:
        """Takes a snapshot of the disk, and with `memory` also of the processes."""
        spec: dict[str, object] = {"name": name, "memory": memory}
        given = {key: value for key, value in spec.items() if value is not None}
        return await self.client.snapshots.create(self.id, timeout=timeout, **given)  # type: ignore[arg-type]

    async def update(self, *, timeout: float | None = None, **changes: Unpack[SandboxChanges]) -> Machine:
        """Changes the given fields and keeps the others. `expires_in_sec` counts from now; None means never."""
        return await self.client.machines.update(self.id, timeout=timeout, **changes)

    async def stop(self, *, timeout: float | None = None) -> Machine:
        """Stops the machine and keeps its disk."""
        return await self.client.machines.stop(self.id, timeout=timeout)

    async def resume(self, *, timeout: float | None = None) -> Machine:
        """Starts the stopped machine and returns when it runs."""
        return await self.client.machines.start(self.id, timeout=timeout)

    async def destroy(
        self,
        *,
        preserve_storage: bool | None = None,
        delete_snapshots: bool | None = None,
        timeout: float | None = None,
    ) -> None:
        """Destroys the machine. It is no error when it is destroyed already. See Machines.destroy."""
        try:
            await self.client.machines.destroy(
                self.id, preserve_storage=preserve_storage, delete_snapshots=delete_snapshots, timeout=timeout
            )
        except NotFoundError:
            return

    async def aclose(self) -> None:
        """Closes the connections and keeps the machine. Does not close a client that the caller passed in."""
        if self._owns_client:
            await self.client.aclose()

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.destroy()
        finally:
            await self.aclose()

    async def jobs(self, *, timeout: float | None = None) -> list[Exec]:
        return await self.client.execs.list(self.id, timeout=timeout)

    @classmethod
    async def list(
        cls,
        *,
        state: MachineState | None = None,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        client: AsyncClient | None = None,
        timeout: float | None = None,
        **settings: Unpack[ClientOptions],
    ) -> list[AsyncSandbox]:
        """
        The machines that match the filter, newest first. All have the same client. Destroyed machines are left out
        unless `state` asks for them.
        """
        used = AsyncClient(**settings) if client is None else client
        machines = await used.machines.list(state=state, name=name, metadata=metadata, timeout=timeout)
        return [cls(used, machine["id"]) for machine in machines]


def _split(options: CreateOptions) -> tuple[ClientOptions, MachineCreate]:
    names = ClientOptions.__annotations__
    settings: ClientOptions = {key: value for key, value in options.items() if key in names}  # type: ignore[assignment]
    spec: MachineCreate = {key: value for key, value in options.items() if key not in names}  # type: ignore[assignment]
    return settings, spec


def _command(command: str | Sequence[str], options: ExecOptions) -> tuple[ExecCreate, bytes]:
    """Returns the body of the request that starts a command, and the bytes of stdin that do not fit into it."""
    create: ExecCreate = {key: value for key, value in options.items() if key != "stdin"}  # type: ignore[assignment]
    if isinstance(command, str):
        create["command"] = command
    else:
        create["argv"] = [*command]
    stdin = options.get("stdin")
    if stdin is None:
        return create, b""
    content = stdin.encode() if isinstance(stdin, str) else stdin
    create["stdin"] = base64.b64encode(content[:STDIN_BYTES]).decode()
    return create, content[STDIN_BYTES:]


def _left(deadline: Deadline) -> float | None:
    return deadline.limit(deadline.seconds) if deadline.seconds is not None else None
