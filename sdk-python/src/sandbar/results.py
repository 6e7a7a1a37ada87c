"""What a command returns: its output, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .errors import JobLostError
from .models import Exec

OutputStream = Literal["stdout", "stderr"]

#: The exit code of a command that timed out. The program `timeout(1)` uses the same code.
_TIMED_OUT = 124
#: The exit code for a job that was cancelled before its command ran, so it has neither an exit code nor a signal.
_NO_RESULT = 125
#: Linux numbers the signals in this order. This computer, which may not run Linux, may number them differently.
_SIGNALS = [
    "HUP",
    "INT",
    "QUIT",
    "ILL",
    "TRAP",
    "ABRT",
    "BUS",
    "FPE",
    "KILL",
    "USR1",
    "SEGV",
    "USR2",
    "PIPE",
    "ALRM",
    "TERM",
    "STKFLT",
    "CHLD",
    "CONT",
    "STOP",
    "TSTP",
    "TTIN",
    "TTOU",
    "URG",
    "XCPU",
    "XFSZ",
    "VTALRM",
    "PROF",
    "WINCH",
    "IO",
    "PWR",
    "SYS",
]
_SIGNAL_NUMBERS = {f"SIG{name}": number for number, name in enumerate(_SIGNALS, start=1)}


@dataclass(frozen=True)
class OutputChunk:
    """A piece of a job's output."""

    stream: OutputStream
    offset: int
    """The position of the first byte in its stream."""
    data: bytes


@dataclass(frozen=True)
class RunResult:
    """A job that has ended, with all of its output."""

    job: Exec
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True)
class ExecResult:
    """How a command ended, and what it wrote."""

    job_id: str
    exit_code: int
    """The exit code of the command; 128+n when signal n ended it; 124 after a time-out."""
    signal: str | None
    """The signal that ended the command, such as SIGKILL, or None."""
    timed_out: bool
    stdout_bytes: bytes
    stderr_bytes: bytes
    truncated: bool
    """True when output over the limit of a stream was dropped. The default limit of the service is 256 MiB."""

    @property
    def stdout(self) -> str:
        """As UTF-8; other bytes are shown as U+FFFD."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """As UTF-8; other bytes are shown as U+FFFD."""
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def combined(self) -> str:
        """Stdout, then stderr. With `merge_output=True` everything is in stdout, in the order written."""
        return (self.stdout_bytes + self.stderr_bytes).decode("utf-8", "replace")


def exec_result(job: Exec, stdout: bytes, stderr: bytes) -> ExecResult:
    """Makes the result of a job. Raises JobLostError when the machine stopped or died while the job ran."""
    if job["status"] == "lost":
        raise JobLostError(job["machine_id"], job["id"])
    return ExecResult(
        job_id=job["id"],
        exit_code=_exit_code(job),
        signal=job["signal"],
        timed_out=job["status"] == "timed_out",
        stdout_bytes=stdout,
        stderr_bytes=stderr,
        truncated=job["truncated"],
    )


def _exit_code(job: Exec) -> int:
    if job["status"] == "timed_out":
        return _TIMED_OUT
    if job["exit_code"] is not None:
        return job["exit_code"]
    if job["signal"] is None:
        return _NO_RESULT
    return 128 + _SIGNAL_NUMBERS.get(job["signal"], 0)


@dataclass(frozen=True)
class TerminalExit:
    """How the program of a terminal ended."""

    code: int | None
    """None when a signal ended the program."""
    signal: str | None
