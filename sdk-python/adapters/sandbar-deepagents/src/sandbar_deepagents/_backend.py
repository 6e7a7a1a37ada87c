"""Implements the sandbox interface of deepagents with a machine."""

from __future__ import annotations

import posixpath
from types import TracebackType

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox
from typing_extensions import Unpack

from sandbar import NotFoundError, SandbarError, Sandbox, ValidationError
from sandbar._sync.sandbox import CreateOptions

from ._run import run
from ._user_files import DENIED, IS_DIRECTORY, NOT_FOUND, UserFileError, read_as, write_as

#: The default lifetime of a machine that `create` makes, seconds.
EXPIRES_IN_SEC = 3600
#: The longest time that the service runs a command, seconds.
_TIMEOUT_MAX_SEC = 86_400
_CODES = {IS_DIRECTORY: "is_directory", NOT_FOUND: "file_not_found", DENIED: "permission_denied"}


class SandbarSandbox(BaseSandbox):
    """
    A machine as the backend of an agent. `create` makes a new machine; pass an existing machine to the constructor. In
    both cases `close` and the end of a `with` block destroy the machine.
    """

    enable_capture_offload = True

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        user: str | None = None,
        timeout_sec: int = 1800,
        max_output_bytes: int = 10 * 1024 * 1024,
    ) -> None:
        """
        `user`: the user that runs commands, and reads and writes files. Default: the image's user for commands, and
        root for files. `timeout_sec`: the limit of commands that are run without their own time-out.
        `max_output_bytes`: output after this many bytes is dropped, and the response says so.
        """
        self.sandbox = sandbox
        self._user = user
        self._timeout_sec = timeout_sec
        self._max_output_bytes = max_output_bytes

    @classmethod
    def create(
        cls,
        *,
        user: str | None = None,
        timeout_sec: int = 1800,
        max_output_bytes: int = 10 * 1024 * 1024,
        **options: Unpack[CreateOptions],
    ) -> SandbarSandbox:
        """
        Makes a machine, with the options of `Sandbox.create`. The machine expires after one hour unless
        `expires_in_sec` says otherwise, so it does not stay for ever when the program is killed.
        """
        options.setdefault("expires_in_sec", EXPIRES_IN_SEC)
        sandbox = Sandbox.create(**options)
        return cls(sandbox, user=user, timeout_sec=timeout_sec, max_output_bytes=max_output_bytes)

    @property
    def id(self) -> str:
        """The id of the machine."""
        return self.sandbox.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """
        Runs a command with `/bin/sh -c`. `timeout` is in seconds; the maximum is a day, and 0 means a day. `exit_code`
        is that of the command, 128+n when signal n ended it, 124 after a time-out, and None when the machine stopped or
        died meanwhile. Raises SandbarError when the machine does not exist or is stopped.
        """
        limit = self._timeout_sec if timeout is None else timeout
        seconds = min(limit, _TIMEOUT_MAX_SEC) if limit > 0 else _TIMEOUT_MAX_SEC
        ran = run(self.sandbox, command, user=self._user, timeout_sec=seconds, max_bytes=self._max_output_bytes)
        output = ran.output.decode("utf-8", "replace")
        if ran.is_timed_out:
            output += f"\nThe command was ended after {seconds} s."
        return ExecuteResponse(output=output, exit_code=ran.exit_code, truncated=ran.is_truncated)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes each file, and makes missing directories. An error with one file does not stop the others."""
        return [FileUploadResponse(path=path, error=self._upload(path, content)) for path, content in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads each file. An error with one file does not stop the others."""
        return [self._download(path) for path in paths]

    def close(self) -> None:
        """Destroys the machine and closes the connections. It is no error when the machine is destroyed already."""
        try:
            self.sandbox.destroy()
        finally:
            self.sandbox.close()

    def __enter__(self) -> SandbarSandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _upload(self, path: str, content: bytes) -> str | None:
        """Writes one file. Returns the reason if that fails, else None."""
        if not posixpath.isabs(path):
            return "invalid_path"
        try:
            if self._user is None:
                self.sandbox.files.write(path, content)
            else:
                write_as(self.sandbox, self._user, path, content)
        except (SandbarError, UserFileError, OSError) as error:
            return self._reason(path, error)
        return None

    def _download(self, path: str) -> FileDownloadResponse:
        if not posixpath.isabs(path):
            return FileDownloadResponse(path=path, error="invalid_path")
        try:
            content = self.sandbox.files.read(path) if self._user is None else read_as(self.sandbox, self._user, path)
        except (SandbarError, UserFileError, OSError) as error:
            return FileDownloadResponse(path=path, error=self._reason(path, error))
        return FileDownloadResponse(path=path, content=content)

    def _reason(self, path: str, error: Exception) -> str:
        """Returns a standard error code of deepagents, or the text of the error when no code fits."""
        if isinstance(error, UserFileError):
            return _CODES.get(error.exit_code) or str(error)
        if isinstance(error, ValidationError):
            return "invalid_path"
        if not isinstance(error, SandbarError) or error.code not in ("not_found", "conflict"):
            return str(error)
        # These codes are ambiguous: either the machine is gone or stopped, or the path is missing or no regular file.
        try:
            if self.sandbox.exec(["test", "-d", path], timeout_sec=10).exit_code == 0:
                return "is_directory"
        except (SandbarError, OSError) as gone:
            return str(gone)
        return "file_not_found" if isinstance(error, NotFoundError) else str(error)
