"""Exec jobs: start a command in a machine, wait for it, read its output."""

from __future__ import annotations

import base64
import uuid
from collections.abc import AsyncGenerator
from typing import Literal

from typing_extensions import Unpack

from sandbar._async.job import AsyncJob
from sandbar._async.job_stdin import AsyncJobStdin
from sandbar._async.transport import AsyncTransport
from sandbar._deadline import Deadline
from sandbar._paths import exec_path, machine_path
from sandbar._platform_async import OnOpen, merge, sleep
from sandbar._request import Request
from sandbar._retry import ReopenSchedule
from sandbar.errors import ConnectionError, SandbarError
from sandbar.models import Exec, ExecCreate, ExecList, ExecOutput, ExecStarted
from sandbar.results import OutputChunk, OutputStream, RunResult

JobSignal = Literal["INT", "TERM", "HUP", "KILL", "USR1", "USR2", "QUIT"]

#: The duration of one long poll, seconds. Many proxies close a connection that is silent for 60 s.
WAIT_SEC = 30.0
#: The most bytes of one page of output.
PAGE_BYTES = 1024 * 1024


class AsyncExecs:
    """The jobs of machines."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def start(
        self,
        machine_id: str,
        *,
        wait_ms: int | None = None,
        timeout: float | None = None,
        **command: Unpack[ExecCreate],
    ) -> ExecStarted:
        """
        Starts a command and returns as soon as the service accepts it. With `wait_ms` (0 to 60000) it returns when the
        job has ended or that time is over. In this case `output` contains the first page of each output stream, unless
        the service has dropped the output already (`output_expired`).

        Without an `exec_id` the client makes one. If the answer is lost and the retry is refused because the id was
        used already, this returns the job that the first request started, without `output`.
        """
        return await self._start(machine_id, command, wait_ms, Deadline(timeout))

    async def start_job(
        self,
        machine_id: str,
        *,
        timeout: float | None = None,
        **command: Unpack[ExecCreate],
    ) -> AsyncJob:
        """
        Starts a command and returns a handle of the job. With `stdin_open=True` the handle's `stdin` writes to the
        command's standard input until it is closed. If `stdin` is also given here, its bytes come first.
        """
        started = await self._start(machine_id, command, None, Deadline(timeout))
        accepted = len(base64.b64decode(command.get("stdin", "")))
        return AsyncJob(
            self, machine_id, started["id"], AsyncJobStdin(self._transport, machine_id, started["id"], accepted)
        )

    def job(self, machine_id: str, exec_id: str) -> AsyncJob:
        """A handle of a job that was started before. Sends nothing."""
        return AsyncJob(self, machine_id, exec_id, AsyncJobStdin(self._transport, machine_id, exec_id))

    async def run(self, machine_id: str, *, timeout: float | None = None, **command: Unpack[ExecCreate]) -> RunResult:
        """
        Runs a command to its end and returns the job and all of its output, even when the command fails. A short
        command takes one request. Without `timeout` (seconds) it waits as long as the command runs. A TimeoutError does
        not end the job; use `timeout_sec` to limit the command itself.
        """
        deadline = Deadline(timeout)
        started = await self._start(machine_id, command, self._wait_ms(), deadline)
        return await self.result(started, deadline)

    async def get(
        self, machine_id: str, exec_id: str, *, wait_ms: int | None = None, timeout: float | None = None
    ) -> Exec:
        """The job as it is now. With `wait_ms` (up to 60000) it returns when the job has ended or that time is over."""
        return await self._get(machine_id, exec_id, wait_ms, Deadline(timeout))

    async def wait(self, machine_id: str, exec_id: str, *, timeout: float | None = None) -> Exec:
        """Returns when the job has ended. Without `timeout` (seconds) it waits as long as the job runs."""
        deadline = Deadline(timeout)
        while True:
            job = await self._get(machine_id, exec_id, self._wait_ms(), deadline)
            if job["status"] != "running":
                return job

    async def cancel(self, machine_id: str, exec_id: str, *, timeout: float | None = None) -> Exec:
        """Ends every process of the job. A job that has ended already is returned as it is."""
        path = f"{exec_path(machine_id, exec_id)}/cancel"
        return await self._transport.json(Exec, Request("POST", path, is_repeatable=True, deadline=Deadline(timeout)))

    async def signal(self, machine_id: str, exec_id: str, name: JobSignal, *, timeout: float | None = None) -> Exec:
        """
        Sends a signal to the first process of the job. A job that has ended already is returned as it is. The call is
        not repeated after a lost answer, because that could send the signal twice. It is repeated after a 503.
        """
        path = f"{exec_path(machine_id, exec_id)}/signal"
        return await self._transport.json(
            Exec, Request("POST", path, body={"signal": name}, deadline=Deadline(timeout))
        )

    async def output(
        self,
        machine_id: str,
        exec_id: str,
        *,
        stream: OutputStream = "stdout",
        offset: int = 0,
        limit: int | None = None,
        wait_ms: int | None = None,
        timeout: float | None = None,
    ) -> ExecOutput:
        """One page of output; `data` is in base64."""
        query = {"stream": stream, "offset": offset, "limit": limit, "wait_ms": wait_ms}
        path = f"{exec_path(machine_id, exec_id)}/output"
        return await self._transport.json(ExecOutput, Request("GET", path, query=query, deadline=Deadline(timeout)))

    async def stream_output(
        self,
        machine_id: str,
        exec_id: str,
        stream: OutputStream | None = None,
        *,
        offset: int = 0,
        timeout: float | None = None,
    ) -> AsyncGenerator[OutputChunk, None]:
        """
        Yields the output of a job as the command writes it: the bytes of one stream from `offset` on, or without
        `stream` the bytes of both streams. It ends when the job has ended and all bytes were read. When the connection
        breaks, it connects again at the same offset, so it yields every byte exactly once. Raises OutputExpiredError
        when the service dropped the output before it was read, and ConnectionError when it cannot connect again within
        `retry_for_sec`.
        """
        deadline = Deadline(timeout)
        if stream is not None:
            async for chunk in self._stream(machine_id, exec_id, stream, offset, deadline):
                yield chunk
            return

        def out(on_open: OnOpen) -> AsyncGenerator[OutputChunk, None]:
            return self._stream(machine_id, exec_id, "stdout", offset, deadline, on_open)

        def err(on_open: OnOpen) -> AsyncGenerator[OutputChunk, None]:
            return self._stream(machine_id, exec_id, "stderr", offset, deadline, on_open)

        merged = merge([out, err])
        try:
            async for chunk in merged:
                yield chunk
        finally:
            await merged.aclose()

    async def result(self, started: ExecStarted, deadline: Deadline) -> RunResult:
        """Waits for the end of a job, and reads the output that `started` does not contain already."""
        machine_id, id = started["machine_id"], started["id"]
        pages = started.get("output")
        stdout = await self._rest(machine_id, id, "stdout", pages and pages["stdout"], deadline)
        # Stdout ends only when the job ends. The service keeps stderr, so it can be read afterwards.
        stderr = await self._rest(machine_id, id, "stderr", pages and pages["stderr"], deadline)
        job: Exec = started
        while job["status"] == "running":
            job = await self._get(machine_id, id, self._wait_ms(), deadline)
        return RunResult(job, stdout, stderr)

    async def list(self, machine_id: str, *, timeout: float | None = None) -> list[Exec]:
        request = Request("GET", f"{machine_path(machine_id)}/execs", deadline=Deadline(timeout))
        return (await self._transport.json(ExecList, request))["execs"]

    async def _start(
        self, machine_id: str, command: ExecCreate, wait_ms: int | None, deadline: Deadline
    ) -> ExecStarted:
        exec_id = command.get("exec_id") or str(uuid.uuid4())

        async def find_earlier(refusal: SandbarError) -> ExecStarted:
            if refusal.code == "conflict":
                try:
                    request = Request("GET", exec_path(machine_id, exec_id), deadline=deadline)
                    return await self._transport.json(ExecStarted, request)
                except SandbarError:
                    # There is no job with this id, so the conflict has another reason: perhaps the machine is stopped.
                    raise refusal from None
            raise refusal

        request = Request(
            "POST",
            f"{machine_path(machine_id)}/execs",
            query={"wait_ms": wait_ms},
            body={**command, "exec_id": exec_id},
            is_repeatable=True,
            deadline=deadline,
        )
        return await self._transport.json(ExecStarted, request, find_earlier)

    async def _get(self, machine_id: str, exec_id: str, wait_ms: int | None, deadline: Deadline) -> Exec:
        request = Request("GET", exec_path(machine_id, exec_id), query={"wait_ms": wait_ms}, deadline=deadline)
        return await self._transport.json(Exec, request)

    async def _rest(
        self, machine_id: str, exec_id: str, stream: OutputStream, page: ExecOutput | None, deadline: Deadline
    ) -> bytes:
        """Returns all bytes of a stream. `page` is its first page, if that was read already."""
        blocks = [] if page is None else [base64.b64decode(page["data"])]
        if page is None or not page["eof"]:
            offset = 0 if page is None else page["next_offset"]
            blocks += [chunk.data async for chunk in self._stream(machine_id, exec_id, stream, offset, deadline)]
        return b"".join(blocks)

    async def _stream(
        self,
        machine_id: str,
        exec_id: str,
        stream: OutputStream,
        offset: int,
        deadline: Deadline,
        on_open: OnOpen | None = None,
    ) -> AsyncGenerator[OutputChunk, None]:
        """Yields the output of one stream. Connects again whenever the connection breaks."""
        schedule = ReopenSchedule(self._transport.retry_for_sec)
        while True:
            # A stream that ends without `eof` is broken, too: the service ends its streams when it shuts down.
            failure = ConnectionError(f"{self._transport.base_url} closed the output stream before its end")
            pages = self._pages(machine_id, exec_id, stream, offset, deadline, schedule, on_open)
            try:
                async for page in pages:
                    schedule.note_progress()
                    data = base64.b64decode(page["data"])
                    offset = page["next_offset"]
                    if data:
                        yield OutputChunk(stream, offset - len(data), data)
                    if page["eof"]:
                        return
            except ConnectionError as error:
                failure = error
            finally:
                await pages.aclose()
            pause_sec = schedule.pause_after(failure)
            if pause_sec is None:
                raise failure
            await sleep(pause_sec)

    async def _pages(
        self,
        machine_id: str,
        exec_id: str,
        stream: OutputStream,
        offset: int,
        deadline: Deadline,
        schedule: ReopenSchedule,
        on_open: OnOpen | None,
    ) -> AsyncGenerator[ExecOutput, None]:
        """Yields the pages that come over one connection."""
        headers = {"accept": "text/event-stream", **({"last-event-id": str(offset)} if offset > 0 else {})}
        query = {"stream": stream, "offset": offset, "limit": PAGE_BYTES}
        path = f"{exec_path(machine_id, exec_id)}/output"
        response = await self._transport.open(Request("GET", path, query=query, headers=headers, deadline=deadline))
        schedule.note_open()
        if on_open is not None:
            on_open(response)
        events = self._transport.events_of(response, deadline)
        try:
            async for page in events:
                yield page
        finally:
            await events.aclose()

    def _wait_ms(self) -> int:
        """The duration of one long poll, ms. It is shorter than the client's time-out, so that the poll can end."""
        return int(min(WAIT_SEC, self._transport.timeout / 2) * 1000)
