"""A handle of one job. A program can use it to control a REPL or a language server in a machine, for example."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, cast

from sandbar._async.job_stdin import AsyncJobStdin
from sandbar._deadline import Deadline
from sandbar.models import Exec, ExecStarted
from sandbar.results import ExecResult, OutputChunk, OutputStream, exec_result

if TYPE_CHECKING:
    from sandbar._async.execs import AsyncExecs, JobSignal


class AsyncJob:
    """A job of a machine."""

    machine_id: str
    id: str
    stdin: AsyncJobStdin
    """Only for a job that was started with an open stdin."""

    def __init__(self, execs: AsyncExecs, machine_id: str, id: str, stdin: AsyncJobStdin) -> None:
        self._execs = execs
        self.machine_id = machine_id
        self.id = id
        self.stdin = stdin

    async def output(
        self, stream: OutputStream | None = None, *, offset: int = 0, timeout: float | None = None
    ) -> AsyncGenerator[OutputChunk, None]:
        """Yields the output of one stream, or without `stream` of both, as it is written. See Execs.stream_output."""
        chunks = self._execs.stream_output(self.machine_id, self.id, stream, offset=offset, timeout=timeout)
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await chunks.aclose()

    async def info(self, *, timeout: float | None = None) -> Exec:
        """The job as it is now."""
        return await self._execs.get(self.machine_id, self.id, timeout=timeout)

    async def wait(self, *, timeout: float | None = None) -> Exec:
        """Returns when the job has ended. Without `timeout` (seconds) it waits as long as the job runs."""
        return await self._execs.wait(self.machine_id, self.id, timeout=timeout)

    async def result(self, *, timeout: float | None = None) -> ExecResult:
        """
        Waits for the end of the job and returns all of its output, even if a part was read before. Raises JobLostError
        when the machine stopped or died while the job ran, and OutputExpiredError when the output was dropped.
        """
        deadline = Deadline(timeout)
        job = await self._execs.wait(self.machine_id, self.id, timeout=timeout)
        # `wait` returns the job without output, so `result` reads all of it.
        result = await self._execs.result(cast("ExecStarted", job), deadline)
        return exec_result(result.job, result.stdout, result.stderr)

    async def signal(self, name: JobSignal, *, timeout: float | None = None) -> Exec:
        """Sends a signal to the first process of the job. Has no effect when the job has ended."""
        return await self._execs.signal(self.machine_id, self.id, name, timeout=timeout)

    async def cancel(self, *, timeout: float | None = None) -> Exec:
        """Ends every process of the job."""
        return await self._execs.cancel(self.machine_id, self.id, timeout=timeout)
