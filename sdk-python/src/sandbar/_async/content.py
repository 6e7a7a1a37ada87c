"""The content of an upload, and how often it can be sent."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from dataclasses import dataclass
from typing import IO, Any

from sandbar._platform_async import Blocks, blocks_of, open_file, read_blocks

#: The content of an upload: bytes; text, as UTF-8; a local file, by its path or opened in binary mode; an iterable of
#: bytes; or a function that returns new content for each attempt. An iterable, and a file without `seek`, can be read
#: only once, so such an upload is never repeated.
Content = (
    str
    | bytes
    | bytearray
    | memoryview
    | os.PathLike[str]
    | IO[bytes]
    | Iterable[bytes]
    | AsyncIterable[bytes]
    | Callable[[], Blocks]
)

#: A larger byte array is sent in pieces of this size, so that each piece has its own time limit.
PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class OpenContent:
    #: Returns the content for one attempt.
    open: Callable[[], Any]
    is_sent_once: bool


def open_content(content: Content) -> OpenContent:
    if isinstance(content, str):
        content = content.encode()
    if isinstance(content, (bytes, bytearray, memoryview)):
        whole = bytes(content)
        if len(whole) <= PIECE_BYTES:
            return OpenContent(lambda: whole, is_sent_once=False)
        return OpenContent(lambda: blocks_of(_pieces(whole)), is_sent_once=False)
    if isinstance(content, os.PathLike):
        path = os.fspath(content)
        return OpenContent(lambda: _local_file(path), is_sent_once=False)
    if hasattr(content, "read"):
        return _open_stream(content)
    if callable(content):
        make = content
        return OpenContent(lambda: blocks_of(make()), is_sent_once=False)
    blocks = content
    return OpenContent(lambda: blocks_of(blocks), is_sent_once=True)


def _pieces(whole: bytes) -> Iterable[bytes]:
    view = memoryview(whole)
    return (bytes(view[at : at + PIECE_BYTES]) for at in range(0, len(whole), PIECE_BYTES))


async def _local_file(path: str) -> AsyncGenerator[bytes, None]:
    with await open_file(path) as file:
        async for block in read_blocks(file):
            yield block


def _open_stream(file: Any) -> OpenContent:
    if hasattr(file, "encoding"):
        raise TypeError("the file is open in text mode: open it with mode 'rb'")
    seek = getattr(file, "seekable", None)
    if seek is None or not seek():
        return OpenContent(lambda: read_blocks(file), is_sent_once=True)
    start = file.tell()

    async def again() -> AsyncGenerator[bytes, None]:
        file.seek(start)
        async for block in read_blocks(file):
            yield block

    return OpenContent(again, is_sent_once=False)
