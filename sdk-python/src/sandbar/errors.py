"""The errors that a call can raise: the service answered with an error or did not answer, or a setting is missing."""

from __future__ import annotations

import builtins


class SandbarError(Exception):
    """The service answered with an error. For each code of the service there is a subclass."""

    status: int
    """HTTP status."""
    code: str
    """A code of the service's error table, such as `conflict`; `unknown` when a proxy or other server answered."""
    detail: str
    """One sentence that says why the call failed and what to do."""
    request_id: str | None
    """The id of this request in the service's log."""
    retry_after_sec: float | None
    """Seconds after which a retry makes sense (`Retry-After`), or None when the service did not say."""

    def __init__(
        self,
        detail: str,
        *,
        status: int,
        code: str,
        request_id: str | None = None,
        retry_after_sec: float | None = None,
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.status = status
        self.code = code
        self.detail = detail
        self.request_id = request_id
        self.retry_after_sec = retry_after_sec


class ConnectionError(builtins.ConnectionError):
    """No server answered at the base URL, or the connection broke. `__cause__` has the reason."""

    def __init__(self, message: str, *, is_unsent: bool = False) -> None:
        super().__init__(message)
        #: True when no connection was made, so the service certainly did not get the request.
        self.is_unsent = is_unsent


class TimeoutError(ConnectionError, builtins.TimeoutError):
    """The call was not finished within its `timeout`. The service may still carry it out."""


class ConfigurationError(Exception):
    """The address or the key of the service is missing or malformed."""


class FileChangedError(Exception):
    """The file was changed while it was downloaded, so the rest would not belong to the bytes that were read before."""


class JobLostError(Exception):
    """The machine stopped or died while the job ran, so the job has no result."""

    def __init__(self, machine_id: str, job_id: str) -> None:
        super().__init__(f"the machine {machine_id} stopped or died while job {job_id} ran")
        self.machine_id = machine_id
        self.job_id = job_id
