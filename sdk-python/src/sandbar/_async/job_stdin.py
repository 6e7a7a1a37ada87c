"""
Writes to the open stdin of a job. Every request names the offset of its first byte, so the client may repeat it after
any failure: the service writes no byte twice.
"""

from __future__ import annotations

from sandbar._async.transport import AsyncTransport
from sandbar._deadline import Deadline
from sandbar._paths import exec_path
from sandbar._platform_async import Lock, sleep
from sandbar._request import Request
from sandbar.errors import TimeoutError
from sandbar.models import ExecStdin

#: The most bytes of one request.
APPEND_BYTES = 1024 * 1024
#: The pause after a request from which the job accepted no bytes, seconds.
IDLE_SEC = 0.1
#: The limit of one request, seconds. The service waits up to 30 s for a command that does not read.
REQUEST_SEC = 60.0


class AsyncJobStdin:
    """
    Writes to the stdin of a job. `accepted`: how many bytes the job got at its start. None: unknown, so the first write
    asks the service. Calls from several tasks or threads are carried out one after the other.
    """

    def __init__(self, transport: AsyncTransport, machine_id: str, exec_id: str, accepted: int | None = None) -> None:
        self._transport = transport
        self._path = f"{exec_path(machine_id, exec_id)}/stdin"
        self._accepted = accepted
        self._is_closed = False
        self._lock = Lock()

    async def write(self, data: bytes | str, *, timeout: float | None = None) -> None:
        """
        Writes bytes, or text as UTF-8. Returns when the job has accepted them; while the command does not read, this
        waits. Raises ConflictError when the job has ended or the command has closed its stdin. After a TimeoutError,
        the job may have accepted a part of the bytes.
        """
        content = memoryview(data.encode() if isinstance(data, str) else data)
        deadline = Deadline(timeout)
        async with self._lock:
            if self._is_closed:
                raise ValueError("stdin was closed before this write")
            at = 0
            while at < len(content):
                if self._is_closed:
                    raise ValueError("stdin was closed while this write was under way")
                at += await self._append(bytes(content[at : at + APPEND_BYTES]), deadline)

    async def close(self, *, timeout: float | None = None) -> None:
        """Ends stdin after all bytes that were written before. It is no error to call it again."""
        deadline = Deadline(timeout)
        async with self._lock:
            while not self._is_closed:
                await self._append(b"", deadline, close=True)

    async def _append(self, data: bytes, deadline: Deadline, *, close: bool = False) -> int:
        """Sends one request. Returns how many of its bytes the job has accepted."""
        offset = self._accepted
        if offset is None:
            offset = (await self._put(0, b"", deadline, close=False))["next_offset"]
        # If this call ends without an answer, the service may still carry out the request. Forget the count, so that
        # the next call asks the service for it.
        self._accepted = None
        answer = await self._put(offset, data, deadline, close=close)
        accepted = max(0, min(answer["next_offset"] - offset, len(data)))
        self._accepted = offset + accepted
        self._is_closed = answer["closed"]
        if accepted == 0 and not answer["closed"]:
            # The command does not read at the moment, or the service is about to stop.
            if deadline.is_over:
                raise TimeoutError(f"the command read no more of its stdin within {deadline.seconds:g} s")
            await sleep(IDLE_SEC)
        return accepted

    async def _put(self, offset: int, data: bytes, deadline: Deadline, *, close: bool) -> ExecStdin:
        query = {"offset": offset, "close": True if close else None}
        limit = deadline if deadline.is_set else Deadline(max(REQUEST_SEC, self._transport.timeout))
        request = Request("PUT", self._path, query=query, content=lambda: data, deadline=limit)
        return await self._transport.json(ExecStdin, request)
