"""Implements the sandbox session of the Agents SDK with a machine."""

from __future__ import annotations

import asyncio
import contextlib
import io
import math
import uuid
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from agents.sandbox._mount_security import redact_mount_error_data
from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortUnavailableError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
    WorkspaceWriteTypeError,
)
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.bounded_read import collect_bounded
from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER, RuntimeHelperScript
from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tar_bytes
from agents.sandbox.workspace_paths import (
    coerce_posix_path,
    posix_path_as_path,
    posix_path_for_error,
    sandbox_path_str,
)
from typing_extensions import override

import sandbar
from sandbar import AsyncSandbox, JobLostError, SandbarError
from sandbar.models import ExecCreate
from sandbar.results import exec_result

from ._options import SandbarSandboxSessionState

#: The longest time that the service runs a command, seconds.
_TIMEOUT_MAX_SEC = 86_400
#: After the time-out of a command, the service may take so long to end the command and answer, seconds.
_GRACE_SEC = 15
_FAILURES = (SandbarError, JobLostError, sandbar.ConnectionError)


class SandbarSandboxSession(BaseSandboxSession):
    """A session in a machine. `SandbarSandboxClient` makes it."""

    state: SandbarSandboxSessionState

    def __init__(self, *, state: SandbarSandboxSessionState, sandbox: AsyncSandbox) -> None:
        self.state = state
        self.sandbox = sandbox

    @redact_mount_error_data
    @override
    async def exec(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
    ) -> ExecResult:
        """Like the base class, but `user` needs no sudo in the image: the service starts the command as that user."""
        argv = self._prepare_exec_command(*command, shell=shell, user=None)
        return await self._run(argv, timeout, user.name if isinstance(user, User) else user)

    @override
    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        return await self._run([str(part) for part in command], timeout, None)

    async def _run(
        self, argv: list[str], timeout: float | None, user: str | None, *, cwd: str | None = None
    ) -> ExecResult:
        """Runs a command. After `timeout` (seconds), ends all its processes and raises ExecTimeoutError."""
        id = str(uuid.uuid4())
        create: ExecCreate = {
            "argv": argv,
            "exec_id": id,
            "cwd": cwd or sandbox_path_str(self.state.manifest.root),
            "env": {**self.state.base_env_vars, **await self.state.manifest.environment.resolve()},
            "timeout_sec": _TIMEOUT_MAX_SEC if timeout is None else min(max(math.ceil(timeout), 1), _TIMEOUT_MAX_SEC),
        }
        if user is not None:
            create["user"] = user
        call = self.sandbox.client.execs.run(
            self.sandbox.id, timeout=None if timeout is None else create["timeout_sec"] + _GRACE_SEC, **create
        )
        try:
            # The service accepts only whole seconds, so wait here if `timeout` has a fraction.
            ran = await asyncio.wait_for(call, timeout if timeout is not None and timeout % 1 else None)
            result = exec_result(ran.job, ran.stdout, ran.stderr)
        except (TimeoutError, asyncio.CancelledError) as error:
            with contextlib.suppress(Exception):
                await asyncio.shield(self.sandbox.client.execs.cancel(self.sandbox.id, id, timeout=_GRACE_SEC))
            if isinstance(error, TimeoutError):
                raise ExecTimeoutError(command=tuple(argv), timeout_s=timeout, cause=error) from error
            raise
        except _FAILURES as error:
            raise ExecTransportError(
                command=tuple(argv), context=_context(error), cause=error, message=f"the command did not run: {error}"
            ) from error
        if result.timed_out:
            raise ExecTimeoutError(command=tuple(argv), timeout_s=timeout)
        note = b"\n[output over the limit of the service was dropped]\n" if result.truncated else b""
        return ExecResult(stdout=result.stdout_bytes, stderr=result.stderr_bytes + note, exit_code=result.exit_code)

    @override
    async def read(self, path: Path | str, *, user: str | User | None = None) -> io.IOBase:
        wanted = await self._readable(path, user)
        try:
            return io.BytesIO(await self.sandbox.files.read(sandbox_path_str(wanted)))
        except _FAILURES as error:
            self._raise_unread(path, error)

    @override
    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        wanted = await self._readable(path, None)
        blocks = self.sandbox.files.stream(sandbox_path_str(wanted))
        try:
            return await collect_bounded(blocks, max_bytes)
        except _FAILURES as error:
            self._raise_unread(path, error)
        finally:
            await blocks.aclose()

    @override
    async def write(self, path: Path | str, data: io.IOBase, *, user: str | User | None = None) -> None:
        if user is not None:
            await self._check_write_with_exec(path, user=user)
        content = _bytes_of(data, posix_path_as_path(coerce_posix_path(path)))
        wanted = await self._validate_path_access(path, for_write=True)
        owner = user.name if isinstance(user, User) else user
        try:
            await self.sandbox.files.write(sandbox_path_str(wanted), content, user=owner)
        except _FAILURES as error:
            raise WorkspaceArchiveWriteError(path=wanted, context=_context(error), cause=error) from error

    @override
    async def mkdir(self, path: Path | str, *, parents: bool = False, user: str | User | None = None) -> None:
        if user is not None:
            wanted = await self._check_mkdir_with_exec(path, parents=parents, user=user)
        else:
            wanted = await self._validate_path_access(path, for_write=True)
        argv = ["mkdir", *(["-p"] if parents else []), "--", sandbox_path_str(wanted)]
        result = await self._run(argv, None, user.name if isinstance(user, User) else user, cwd="/")
        if not result.ok():
            context = {"reason": "mkdir_failed", "stderr": result.stderr.decode("utf-8", "replace")}
            raise WorkspaceArchiveWriteError(path=wanted, context=context)

    @override
    async def running(self) -> bool:
        try:
            return (await self.sandbox.info(timeout=10))["state"] == "running"
        except _FAILURES:
            return False

    @override
    async def persist_workspace(self) -> io.IOBase:
        root = self._workspace_root_path()
        path = f"/tmp/.sandbar-workspace-{uuid.uuid4().hex}.tar"
        skipped = sorted(relative.as_posix() for relative in self._persist_workspace_skip_relpaths())
        excludes = [f"--exclude=./{relative}" for relative in skipped if relative not in ("", ".")]
        mounted = []
        try:
            for entry, target in self.state.manifest.ephemeral_mount_targets():
                await entry.mount_strategy.teardown_for_snapshot(entry, self, target)
                mounted.append((entry, target))
            made = await self._run(["tar", *excludes, "-C", root.as_posix(), "-cf", path, "."], None, None, cwd="/")
            # tar returns 1 when a file changed while it was read. The archive is still usable.
            if made.exit_code not in (0, 1):
                context = {"reason": "tar_failed", "stderr": made.stderr.decode("utf-8", "replace")}
                raise WorkspaceArchiveReadError(path=root, context=context)
            return io.BytesIO(await self.sandbox.files.read(path))
        except _FAILURES as error:
            raise WorkspaceArchiveReadError(path=root, context=_context(error), cause=error) from error
        finally:
            with contextlib.suppress(*_FAILURES):
                await self.sandbox.files.remove(path)
            for entry, target in reversed(mounted):
                await entry.mount_strategy.restore_after_snapshot(entry, self, target)

    @override
    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root = self._workspace_root_path()
        content = _bytes_of(data, root)
        try:
            validate_tar_bytes(content, allow_external_symlink_targets=False)
            await self.mkdir(root, parents=True)
            unpacked = await self.sandbox.files.unpack(root.as_posix(), content)
        except UnsafeTarMemberError as error:
            context = {"reason": "unsafe_or_invalid_tar", "member": error.member, "detail": str(error)}
            raise WorkspaceArchiveWriteError(path=root, context=context, cause=error) from error
        except _FAILURES as error:
            raise WorkspaceArchiveWriteError(path=root, context=_context(error), cause=error) from error
        if unpacked["refused_count"] > 0:
            refused = {"reason": "tar_extract_failed", "refused": unpacked["refused"]}
            raise WorkspaceArchiveWriteError(path=root, context=refused)

    @override
    async def _prepare_backend_workspace(self) -> None:
        """Makes the root directory of the workspace, where all commands run."""
        root = sandbox_path_str(self.state.manifest.root)
        try:
            await self.sandbox.files.mkdir(root)
        except _FAILURES as error:
            raise WorkspaceStartError(path=posix_path_for_error(root), context=_context(error), cause=error) from error

    @override
    async def _shutdown_backend(self) -> None:
        """Destroys the machine, or stops it with `pause_on_exit`."""
        if self.state.pause_on_exit:
            await self.sandbox.stop()
        else:
            await self.sandbox.destroy()

    @override
    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        try:
            url = urlsplit(await self.sandbox.ports.url(port, expires_in_sec=self.state.exposed_port_url_ttl_s))
        except _FAILURES as error:
            raise ExposedPortUnavailableError(
                port=port,
                exposed_ports=self.state.exposed_ports,
                reason="backend_unavailable",
                context=_context(error),
                cause=error,
            ) from error
        is_tls = url.scheme == "https"
        return ExposedPortEndpoint(
            host=url.hostname or "", port=url.port or (443 if is_tls else 80), tls=is_tls, query=url.query
        )

    @override
    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        return await self._validate_remote_path_access(path, for_write=for_write)

    @override
    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    async def _readable(self, path: Path | str, user: str | User | None) -> Path:
        if user is not None:
            return await self._check_read_with_exec(path, user=user)
        return await self._validate_path_access(path)

    def _raise_unread(self, path: Path | str, error: Exception) -> NoReturn:
        shown = posix_path_as_path(coerce_posix_path(path))
        if isinstance(error, sandbar.NotFoundError):
            raise WorkspaceReadNotFoundError(path=shown, cause=error) from error
        raise WorkspaceArchiveReadError(path=shown, context=_context(error), cause=error) from error


def _bytes_of(data: io.IOBase, path: Path) -> bytes:
    content = data.read()
    if isinstance(content, str):
        return content.encode()
    if not isinstance(content, bytes | bytearray):
        raise WorkspaceWriteTypeError(path=path, actual_type=type(content).__name__)
    return bytes(content)


def _context(error: Exception) -> dict[str, object]:
    context: dict[str, object] = {"backend": "sandbar", "provider_error": str(error)}
    if isinstance(error, SandbarError):
        context |= {"http_status": error.status, "provider_error_code": error.code, "request_id": error.request_id}
    return context
