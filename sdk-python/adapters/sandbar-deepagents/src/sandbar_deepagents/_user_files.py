"""
Reads and writes files of a machine with the rights of one of its users. The SDK itself accesses files with the rights
of root.
"""

from __future__ import annotations

from sandbar import Sandbox

IS_DIRECTORY = 81
NOT_FOUND = 82
DENIED = 83

_READ = f"""
[ -d "$1" ] && exit {IS_DIRECTORY}
[ -e "$1" ] || exit {NOT_FOUND}
[ -r "$1" ] || exit {DENIED}
exec cat -- "$1"
"""
_WRITE = f"""
[ -d "$1" ] && exit {IS_DIRECTORY}
parent=$(dirname -- "$1")
mkdir -p -- "$parent" || exit {DENIED}
if [ -e "$1" ]; then [ -w "$1" ] || exit {DENIED}; else [ -w "$parent" ] || exit {DENIED}; fi
cat > "$1"
"""


class UserFileError(Exception):
    """The user could not read or write a file."""

    def __init__(self, exit_code: int, detail: str) -> None:
        super().__init__(detail)
        #: IS_DIRECTORY, NOT_FOUND, DENIED, or the exit code of the program that failed.
        self.exit_code = exit_code


def read_as(sandbox: Sandbox, user: str, path: str) -> bytes:
    """Returns the bytes of the file. Raises UserFileError, or an error of the SDK when the machine does not answer."""
    result = sandbox.exec(["/bin/sh", "-c", _READ, "sh", path], user=user, cwd="/")
    if result.exit_code != 0 or result.truncated:
        raise UserFileError(result.exit_code, result.stderr.strip() or "the file is too long")
    return result.stdout_bytes


def write_as(sandbox: Sandbox, user: str, path: str, content: bytes) -> None:
    """Writes the file, and makes the directories of the path that are missing. Raises as `read_as` does."""
    result = sandbox.exec(["/bin/sh", "-c", _WRITE, "sh", path], user=user, cwd="/", stdin=content)
    if result.exit_code != 0:
        raise UserFileError(result.exit_code, result.stderr.strip() or "the file was not written")
