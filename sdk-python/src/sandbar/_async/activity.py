"""The feed of what happened in the account."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from typing_extensions import Unpack

from sandbar._async.transport import AsyncTransport
from sandbar._deadline import Deadline
from sandbar._feed import FeedPosition
from sandbar._options import ActivityFilter
from sandbar._paths import machine_path
from sandbar._platform_async import sleep
from sandbar._request import Request
from sandbar.models import ActivityEntry, ActivityList

#: The largest page that the service returns.
PAGE_SIZE = 200
#: How often `follow` asks for new entries, seconds.
POLL_SEC = 1.0


class AsyncActivity:
    """The activity feed of the account."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def page(
        self,
        *,
        page_size: int = PAGE_SIZE,
        cursor: str | None = None,
        timeout: float | None = None,
        **filter: Unpack[ActivityFilter],
    ) -> ActivityList:
        """
        One page of the feed, newest entries first. `page_size` is at most 200. `cursor` is the `next_cursor` of the
        previous page; the last page has an empty `next_cursor`.
        """
        machine_id = filter.get("machine_id")
        path = "/v1/activity" if machine_id is None else f"{machine_path(machine_id)}/activity"
        query = {
            "category": filter.get("category"),
            "q": filter.get("q"),
            "from": filter.get("from_"),
            "to": filter.get("to"),
            "page_size": page_size,
            "cursor": cursor,
        }
        return await self._transport.json(ActivityList, Request("GET", path, query=query, deadline=Deadline(timeout)))

    async def follow(
        self, *, timeout: float | None = None, **filter: Unpack[ActivityFilter]
    ) -> AsyncGenerator[ActivityEntry, None]:
        """
        Yields new entries as they come, oldest first; with `from_` it begins with the entries since then. It never
        ends. `timeout` (seconds) is for each request.
        """
        position = FeedPosition(filter.get("from_"))
        if "from_" not in filter:
            newest = await self.page(page_size=PAGE_SIZE, timeout=timeout, **filter)
            position.skip(newest["activity"])
        while True:
            since = position.since
            if since is not None:
                filter["from_"] = since
            entries = [entry async for entry in self.list(timeout=timeout, **filter)]
            for entry in position.fresh(entries):
                yield entry
            await sleep(POLL_SEC)

    async def list(
        self, *, timeout: float | None = None, **filter: Unpack[ActivityFilter]
    ) -> AsyncGenerator[ActivityEntry, None]:
        """
        Yields the entries of the feed, newest first. It fetches pages as you iterate, so stop when you have enough.
        `timeout` (seconds) is for each page.
        """
        cursor: str | None = None
        while cursor != "":
            page = await self.page(cursor=cursor, timeout=timeout, **filter)
            for entry in page["activity"]:
                yield entry
            cursor = page["next_cursor"]
