"""What the account used and what that cost, and the ledger of its wallet."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from typing_extensions import Unpack

from sandbar._async.transport import AsyncTransport
from sandbar._deadline import Deadline
from sandbar._options import LedgerFilter, UsageFilter
from sandbar._paths import part
from sandbar._request import Request
from sandbar.models import LedgerDetails, LedgerEntry, LedgerList, Usage

#: The largest page that the service returns.
PAGE_SIZE = 1000


class AsyncBilling:
    """The use and the wallet of the account."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def usage(self, *, timeout: float | None = None, **filter: Unpack[UsageFilter]) -> Usage:
        """
        What the account used and what that cost. Amounts are EUR as text, because floating-point numbers would round
        them.
        """
        return await self._transport.json(Usage, _usage(filter, "application/json", timeout))

    async def usage_csv(self, *, timeout: float | None = None, **filter: Unpack[UsageFilter]) -> str:
        """The items of `usage` as CSV with a header row."""
        return (await self._transport.fetch(_usage(filter, "text/csv", timeout))).text

    async def ledger(
        self, *, timeout: float | None = None, **filter: Unpack[LedgerFilter]
    ) -> AsyncGenerator[LedgerEntry, None]:
        """
        Yields the entries of the ledger, newest first. It fetches pages as you iterate, so stop when you have enough.
        `timeout` (seconds) is for each page.
        """
        cursor: str | None = None
        while cursor != "":
            page = await self.ledger_page(cursor=cursor, timeout=timeout, **filter)
            for entry in page["entries"]:
                yield entry
            cursor = page["next_cursor"]

    async def ledger_page(
        self,
        *,
        page_size: int = PAGE_SIZE,
        cursor: str | None = None,
        timeout: float | None = None,
        **filter: Unpack[LedgerFilter],
    ) -> LedgerList:
        """
        One page of the ledger, newest entries first. `page_size` is at most 1000. `cursor` is the `next_cursor` of the
        previous page; the last page has an empty `next_cursor`.
        """
        query = {
            "kind": filter.get("kind"),
            "from": filter.get("from_"),
            "to": filter.get("to"),
            "page_size": page_size,
            "cursor": cursor,
        }
        request = Request("GET", "/v1/billing/ledger", query=query, deadline=Deadline(timeout))
        return await self._transport.json(LedgerList, request)

    async def entry(self, id: str, *, timeout: float | None = None) -> LedgerDetails:
        """One entry of the ledger; a charge comes with its lines."""
        request = Request("GET", f"/v1/billing/ledger/{part(id)}", deadline=Deadline(timeout))
        return await self._transport.json(LedgerDetails, request)


def _usage(filter: UsageFilter, accept: str, timeout: float | None) -> Request:
    query = {
        "from": filter.get("from_"),
        "to": filter.get("to"),
        "group_by": filter.get("group_by"),
        "machine_id": filter.get("machine_id"),
    }
    return Request("GET", "/v1/billing/usage", query=query, headers={"accept": accept}, deadline=Deadline(timeout))
