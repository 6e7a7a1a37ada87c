"""
Files of a machine. Root's are read and written by the file API. Other users' are read and written by a command of that
user, so that the kernel checks their rights.
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
    """The bytes of a file. Raises as SandboxEnvironment.read_file does, and the errors of the SDK."""
    content = bytearray()
    try:
        async for block in sandbox.files.stream(path):
            content += block
            _check_length(content)
    except (NotFoundError, ConflictError) as error:
        await _raise_cause(sandbox, path, error)
    return bytes(content)


async def write_as_root(sandbox: AsyncSandbox, path: str, content: bytes) -> None:
    """Writes a file. Raises as SandboxEnvironment.write_file does, and the errors of the SDK."""
    try:
        await sandbox.files.write(path, content)
    except (NotFoundError, ConflictError) as error:
        await _raise_cause(sandbox, path, error)


async def read_as_user(run: Run, path: str) -> bytes:
    """As `read_as_root`, with the rights of the user that `run` runs commands as."""
    limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE + 1
    result = await run(["/bin/sh", "-c", _READ, "sh", path, str(limit)], None)
    _check(result, path)
    _check_length(result.stdout_bytes)
    return result.stdout_bytes


async def write_as_user(run: Run, path: str, content: bytes) -> None:
    """As `write_as_root`, with the rights of the user that `run` runs commands as."""
    _check(await run(["/bin/sh", "-c", _WRITE, "sh", path], content), path)


def _check(result: ExecResult, path: str) -> None:
    if result.exit_code != 0:
        number = _CAUSES.get(result.exit_code, errno.EIO)
        raise OSError(number, os.strerror(number).lower() if number != errno.EIO else result.stderr.strip(), path)


def _check_length(content: bytes | bytearray) -> None:
    if len(content) > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
        raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)


async def _raise_cause(sandbox: AsyncSandbox, path: str, error: NotFoundError | ConflictError) -> None:
    """The two codes say which kind of file the path is, or that the machine is gone or stopped. Finds out which."""
    is_directory = (await sandbox.exec(["/bin/sh", "-c", '[ -d "$1" ]', "sh", path], timeout_sec=10)).exit_code == 0
    if is_directory:
        raise IsADirectoryError(errno.EISDIR, "is a directory", path) from error
    if isinstance(error, NotFoundError) or "not a folder" in error.detail:
        raise FileNotFoundError(errno.ENOENT, error.detail, path) from error
    raise OSError(errno.EIO, error.detail, path) from error
