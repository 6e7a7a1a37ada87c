"""Downloads a file. When the connection breaks, continues at the same byte, unless the file has changed."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import httpx

from sandbar._async.transport import AsyncTransport
from sandbar._deadline import Deadline
from sandbar._platform_async import sleep
from sandbar._request import Request
from sandbar._retry import ReopenSchedule
from sandbar.errors import ConnectionError, FileChangedError, SandbarError


async def download(
    transport: AsyncTransport, path: str, start: int, end: int | None, deadline: Deadline
) -> AsyncGenerator[bytes, None]:
    """
    Yields the bytes of the file at `path`, from byte `start` to byte `end`. After a broken connection, raises
    ConnectionError if it cannot continue within the time for retries, or if the file cannot be read from the middle,
    like files in /proc.
    """
    position = start
    etag: str | None = None
    schedule = ReopenSchedule(transport.retry_for_sec)
    while True:
        has_parts = True
        try:
            response = await _open(transport, path, position, end, etag, deadline)
            etag = response.headers.get("etag")
            has_parts = "accept-ranges" in response.headers
            blocks = transport.bytes_of(response, deadline)
            try:
                async for block in blocks:
                    position += len(block)
                    schedule.note_progress()
                    yield block
            finally:
                await blocks.aclose()
            return
        except ConnectionError as error:
            pause_sec = schedule.pause_after(error)
            if pause_sec is None or (not has_parts and position > start):
                raise
        await sleep(pause_sec)


async def _open(
    transport: AsyncTransport, path: str, position: int, end: int | None, etag: str | None, deadline: Deadline
) -> httpx.Response:
    """Opens the file at a byte. Raises FileChangedError if it has another ETag than before."""
    headers = {"accept": "application/octet-stream"}
    if position > 0 or end is not None:
        headers["range"] = f"bytes={position}-{'' if end is None else end}"
        if etag is not None:
            headers["if-range"] = etag
    try:
        response = await transport.open(Request("GET", path, headers=headers, deadline=deadline))
    except SandbarError as error:
        # The file is now shorter than the part that this download has read already.
        if etag is not None and error.status == 416:
            raise FileChangedError("the file was changed while it was read") from error
        raise
    if etag is None or response.headers.get("etag") == etag:
        return response
    await response.aclose()
    raise FileChangedError("the file was changed while it was read")
