"""Implements the sandbox environment of Inspect with a machine."""

from __future__ import annotations

import posixpath
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Literal, overload

import anyio
from inspect_ai.util import (
    ExecResult,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    sandboxenv,
)
from pydantic import BaseModel
from typing_extensions import override

import sandbar
from sandbar import AsyncClient, AsyncSandbox, JobLostError, SandbarError
from sandbar.models import ExecCreate

from ._config import SandbarSandboxConfig, config_of
from ._files import read_as_root, read_as_user, write_as_root, write_as_user
from ._run import run

#: The longest time that the service runs a command, seconds.
_TIMEOUT_MAX_SEC = 86_400
_USER_AGENT = "sandbar-inspect/0.1.0"
#: The exit code of a shell when it cannot run a program.
_NOT_EXECUTABLE = 126


@sandboxenv(name="sandbar")
class SandbarSandboxEnvironment(SandboxEnvironment):
    """The machine of one sample; every sample gets a new machine. Needs asyncio, on which Inspect runs by default."""

    def __init__(self, sandbox: AsyncSandbox, config: SandbarSandboxConfig, working_dir: str, uid: str) -> None:
        """Use `start`, which finds out `working_dir` and `uid`."""
        super().__init__()
        self.sandbox = sandbox
        self._user = config.user
        self._working_dir = working_dir
        self._uid = uid
        self._is_root = uid == "0"

    @classmethod
    async def start(cls, task_name: str, config: SandbarSandboxConfig) -> SandbarSandboxEnvironment:
        """Makes a machine, and the working directory in it. If that fails, destroys the machine."""
        client = AsyncClient(base_url=config.base_url, user_agent=_USER_AGENT)
        sandbox: AsyncSandbox | None = None
        try:
            machine = await client.machines.create(**config.machine(task_name))
            sandbox = AsyncSandbox(client, machine["id"], owns_client=True)
            argv = ["/bin/sh", "-c", "id -u; pwd"]
            about = await (sandbox.exec(argv, user=config.user) if config.user else sandbox.exec(argv))
            if about.exit_code != 0:
                raise SandboxUnavailableError(f"the machine {sandbox.id} cannot run commands: {about.stderr}")
            uid, home = about.stdout.split("\n", 1)
            if config.working_dir is not None:
                script = 'mkdir -p -- "$1" && chown "$2" -- "$1"'
                made = await sandbox.exec(["/bin/sh", "-c", script, "sh", config.working_dir, uid], user="root")
                if made.exit_code != 0:
                    raise SandboxUnavailableError(f"cannot make {config.working_dir}: {made.stderr}")
            working_dir = config.working_dir or home.removesuffix("\n")
            return cls(sandbox, config, working_dir, uid)
        except BaseException:
            with anyio.CancelScope(shield=True):
                if sandbox is not None:
                    await sandbox.destroy()
                await client.aclose()
            raise

    async def destroy(self) -> None:
        """Destroys the machine and closes the connections, even while the caller is being cancelled."""
        with anyio.CancelScope(shield=True):
            try:
                await self.sandbox.destroy()
            finally:
                await self.sandbox.aclose()

    @override
    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """
        The exit code is that of the command, or 128+n when signal n ended it. After `timeout` the service ends the
        command with all its processes. `timeout_retry` has no effect: the service loses no commands, so a retry after a
        time-out would not help. `concurrency` has no effect, because no process runs on this computer.
        """
        stdin = input.encode() if isinstance(input, str) else input
        create: ExecCreate = {"cwd": self._path(cwd or "."), "timeout_sec": _seconds(timeout), "env": env or {}}
        try:
            limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
            result = await self._run(cmd, stdin, create, user or self._user, limit)
        except sandbar.ValidationError as error:
            # The command was not run, for example because the user or the directory does not exist.
            return ExecResult(success=False, returncode=_NOT_EXECUTABLE, stdout="", stderr=error.detail)
        if result.timed_out:
            raise TimeoutError(f"the command was ended after {timeout} s")
        if result.exit_code == _NOT_EXECUTABLE and "permission denied" in result.stderr.lower():
            raise PermissionError(result.stderr.strip())
        return ExecResult(
            success=result.exit_code == 0, returncode=result.exit_code, stdout=result.stdout, stderr=result.stderr
        )

    @override
    async def write_file(self, file: str, contents: str | bytes) -> None:
        content = contents.encode() if isinstance(contents, str) else contents
        path = self._path(file)
        with _unavailable():
            if self._is_root:
                await write_as_root(self.sandbox, path, content)
            else:
                await write_as_user(self._run_for_file, path, content)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    @override
    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        path = self._path(file)
        with _unavailable():
            if self._is_root:
                content = await read_as_root(self.sandbox, path)
            else:
                content = await read_as_user(self._run_for_file, path)
        return content.decode() if text else content

    @override
    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """Returns the command of Sandbar's CLI that opens a terminal in the machine."""
        return SandboxConnection(type="sandbar", command=f"sandbar shell {self.sandbox.id}")

    @classmethod
    @override
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        return {"default": await cls.start(task_name, config_of(config))}

    @classmethod
    @override
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            await environment.as_type(cls).destroy()

    @classmethod
    @override
    async def cli_cleanup(cls, id: str | None) -> None:
        """Destroys the machine with this id, or all machines of the account that this package made."""
        async with AsyncClient(user_agent=_USER_AGENT) as client:
            if id is not None:
                await AsyncSandbox(client, id).destroy()
                return
            for sandbox in await AsyncSandbox.list(metadata={"created_by": "inspect"}, client=client):
                await sandbox.destroy()

    @classmethod
    @override
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return SandbarSandboxConfig(**config)

    def _path(self, path: str) -> str:
        return posixpath.join(self._working_dir, path)

    async def _run(
        self, cmd: list[str], stdin: bytes | None, create: ExecCreate, user: str | None, limit: int
    ) -> sandbar.ExecResult:
        if user is not None:
            create["user"] = user
        with _unavailable():
            return await run(self.sandbox, cmd, stdin, create, limit, self._uid)

    async def _run_for_file(self, cmd: list[str], stdin: bytes | None) -> sandbar.ExecResult:
        # One byte more than the longest allowed file, to notice a file that is too long.
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE + 1
        return await self._run(cmd, stdin, {"cwd": "/", "timeout_sec": _TIMEOUT_MAX_SEC}, self._user, limit)


def _seconds(timeout: int | None) -> int:
    return _TIMEOUT_MAX_SEC if timeout is None else min(max(timeout, 1), _TIMEOUT_MAX_SEC)


@contextmanager
def _unavailable() -> Generator[None, None, None]:
    """Turns errors of a machine that is gone, or a service that does not answer, into SandboxUnavailableError."""
    try:
        yield
    except sandbar.ValidationError:
        raise
    except (SandbarError, JobLostError, sandbar.ConnectionError) as error:
        raise SandboxUnavailableError(str(error)) from error
