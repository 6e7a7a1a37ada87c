"""
Sandbar: real microVMs through a REST API.

`Sandbox` is one machine, in which a program runs commands and uses files. `Client` has a method for every call of the
API. `AsyncSandbox` and `AsyncClient` are the same for asyncio.
"""

from ._async.client import AsyncClient
from ._async.execs import AsyncExecs
from ._async.files import AsyncFiles, FileEvent
from ._async.job import AsyncJob
from ._async.job_stdin import AsyncJobStdin
from ._async.port_connection import AsyncPortConnection
from ._async.ports import AsyncPorts
from ._async.sandbox import AsyncSandbox
from ._async.terminal_connection import AsyncTerminalConnection
from ._error_codes import (
    AccessDeniedError,
    AuthorizationPendingError,
    ConflictError,
    DatabaseUnavailableError,
    DiskFullError,
    EndpointRetiredError,
    ExpiredTokenError,
    FleetCapacityError,
    ForbiddenError,
    HostUnavailableError,
    InsufficientBalanceError,
    InternalError,
    MethodNotAllowedError,
    NotFoundError,
    OutputExpiredError,
    PasswordRequiredError,
    PayloadTooLargeError,
    PaymentsUnavailableError,
    PortNotOpenError,
    QuotaExceededError,
    RangeNotSatisfiableError,
    RateLimitedError,
    ShuttingDownError,
    SignInRequiredError,
    SlowDownError,
    UnauthenticatedError,
    UnsupportedMediaTypeError,
    ValidationError,
)
from ._paths import path_of
from ._sync.client import Client
from ._sync.execs import Execs
from ._sync.files import Files
from ._sync.job import Job
from ._sync.job_stdin import JobStdin
from ._sync.port_connection import PortConnection
from ._sync.ports import Ports
from ._sync.sandbox import Sandbox
from ._sync.terminal_connection import TerminalConnection
from ._version import __version__
from .errors import (
    ConfigurationError,
    ConnectionError,
    FileChangedError,
    JobLostError,
    SandbarError,
    TimeoutError,
)
from .results import ExecResult, OutputChunk, RunResult, TerminalExit

__all__ = [
    "AccessDeniedError",
    "AsyncClient",
    "AsyncExecs",
    "AsyncFiles",
    "AsyncJob",
    "AsyncJobStdin",
    "AsyncPortConnection",
    "AsyncPorts",
    "AsyncSandbox",
    "AsyncTerminalConnection",
    "AuthorizationPendingError",
    "Client",
    "ConfigurationError",
    "ConflictError",
    "ConnectionError",
    "DatabaseUnavailableError",
    "DiskFullError",
    "EndpointRetiredError",
    "ExecResult",
    "Execs",
    "ExpiredTokenError",
    "FileChangedError",
    "FileEvent",
    "Files",
    "FleetCapacityError",
    "ForbiddenError",
    "HostUnavailableError",
    "InsufficientBalanceError",
    "InternalError",
    "Job",
    "JobLostError",
    "JobStdin",
    "MethodNotAllowedError",
    "NotFoundError",
    "OutputChunk",
    "OutputExpiredError",
    "PasswordRequiredError",
    "PayloadTooLargeError",
    "PaymentsUnavailableError",
    "PortConnection",
    "PortNotOpenError",
    "Ports",
    "QuotaExceededError",
    "RangeNotSatisfiableError",
    "RateLimitedError",
    "RunResult",
    "SandbarError",
    "Sandbox",
    "ShuttingDownError",
    "SignInRequiredError",
    "SlowDownError",
    "TerminalConnection",
    "TerminalExit",
    "TimeoutError",
    "UnauthenticatedError",
    "UnsupportedMediaTypeError",
    "ValidationError",
    "__version__",
    "path_of",
]
