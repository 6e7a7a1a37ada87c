"""
Reads and writes files of a machine. Root uses the file API. For another user, a command of that user reads or writes
the file, so that the kernel checks the user's rights.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable

from inspect_ai.util import OutputLimitExceededError, SandboxEnvironmentLimits

from sandbar import AsyncSandbox, ConflictError, ExecResult, NotFoundError

#: Runs a command as the user, with this standard input.
Run = Callable[[list[str], bytes | None], Awaitable[ExecResult]]

_IS_DIRECTORY = 81
_NOT_FOUND = 82
_DENIED = 83
_CAUSES = {_IS_DIRECTORY: errno.EISDIR, _NOT_FOUND: errno.ENOENT, _DENIED: errno.EACCES}

_READ = f"""
[ -d "$1" ] && exit {_IS_DIRECTORY}
[ -e "$1" ] || exit {_NOT_FOUND}
[ -r "$1" ] || exit {_DENIED}
exec head -c "$2" -- "$1"
"""
_WRITE = f"""
[ -d "$1" ] && exit {_IS_DIRECTORY}
parent=$(dirname -- "$1")
mkdir -p -- "$parent" || exit {_DENIED}
if [ -e "$1" ]; then [ -w "$1" ] || exit {_DENIED}; else [ -w "$parent" ] || exit {_DENIED}; fi
cat > "$1"
"""


async def read_as_root(sandbox: AsyncSandbox, path: str) -> bytes:
    """Returns the bytes of a file. Raises the errors of SandboxEnvironment.read_file and of the SDK."""
    content = bytearray()
    try:
        async for block in sandbox.files.stream(path):
            content += block
            _check_length(content)
    except (NotFoundError, ConflictError) as error:
        await _raise_cause(sandbox, path, error)
    return bytes(content)


async def write_as_root(sandbox: AsyncSandbox, path: str, content: bytes) -> None:
    """Writes a file. Raises the errors of SandboxEnvironment.write_file and of the SDK."""
    try:
        await sandbox.files.write(path, content)
    except (NotFoundError, ConflictError) as error:
        await _raise_cause(sandbox, path, error)


async def read_as_user(run: Run, path: str) -> bytes:
    """Like `read_as_root`, but with the rights of the user as whom `run` runs commands."""
    limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE + 1
    result = await run(["/bin/sh", "-c", _READ, "sh", path, str(limit)], None)
    _check(result, path)
    _check_length(result.stdout_bytes)
    return result.stdout_bytes


async def write_as_user(run: Run, path: str, content: bytes) -> None:
    """Like `write_as_root`, but with the rights of the user as whom `run` runs commands."""
    _check(await run(["/bin/sh", "-c", _WRITE, "sh", path], content), path)


def _check(result: ExecResult, path: str) -> None:
    if result.exit_code != 0:
        number = _CAUSES.get(result.exit_code, errno.EIO)
        raise OSError(number, os.strerror(number).lower() if number != errno.EIO else result.stderr.strip(), path)


def _check_length(content: bytes | bytearray) -> None:
    if len(content) > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
        raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)


async def _raise_cause(sandbox: AsyncSandbox, path: str, error: NotFoundError | ConflictError) -> None:
    """
    Finds out what `error` means, and raises the fitting OSError. The service answers with the same codes when the path
    is missing or no regular file, and when the machine is gone or stopped.
    """
    is_directory = (await sandbox.exec(["/bin/sh", "-c", '[ -d "$1" ]', "sh", path], timeout_sec=10)).exit_code == 0
    if is_directory:
        raise IsADirectoryError(errno.EISDIR, "is a directory", path) from error
    if isinstance(error, NotFoundError) or "not a folder" in error.detail:
        raise FileNotFoundError(errno.ENOENT, error.detail, path) from error
    raise OSError(errno.EIO, error.detail, path) from error
