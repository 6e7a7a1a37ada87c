"""Runs the same test with the blocking and the asynchronous client."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Literal

import pytest

from sandbar import AsyncClient, Client

Kind = Literal["sync", "async"]
both = pytest.mark.parametrize("kind", ["sync", "async"])
KEY = "sbr_test"


def run(kind: Kind, url: str, action: Callable[[Any], Any], **options: Any) -> Any:
    """
    Makes a client, passes it to `action`, which makes one call, and returns the result. If the result is a stream,
    returns a list of its items.
    """
    if kind == "sync":
        with Client(base_url=url, api_key=KEY, **options) as client:
            result = action(client)
            return list(result) if isinstance(result, Generator) else result

    async def main() -> Any:
        async with AsyncClient(base_url=url, api_key=KEY, **options) as client:
            result = action(client)
            return await result if isinstance(result, Coroutine) else [item async for item in result]

    return asyncio.run(main())


def take(kind: Kind, url: str, count: int, action: Callable[[Any], Any], **options: Any) -> list[Any]:
    """Returns the first items of a stream, and closes the stream."""
    if kind == "sync":
        with Client(base_url=url, api_key=KEY, **options) as client:
            stream = action(client)
            items = list(itertools.islice(stream, count))
            stream.close()
            return items

    async def main() -> list[Any]:
        async with AsyncClient(base_url=url, api_key=KEY, **options) as client:
            stream = action(client)
            items = [await anext_of(stream) for _ in range(count)]
            await stream.aclose()
            return items

    return asyncio.run(main())


async def anext_of(stream: Any) -> Any:
    return await stream.__anext__()


def wait_until(condition: Callable[[], bool], limit_sec: float = 20) -> None:
    """Waits for a condition. Fails after `limit_sec` seconds."""
    deadline = time.monotonic() + limit_sec
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)
