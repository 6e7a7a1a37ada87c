"""Describes one request of a client, and turns an answer into JSON or an error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import httpx

from ._deadline import Deadline
from ._error_codes import ERROR_CLASSES
from .errors import SandbarError

Query = Mapping[str, str | int | float | bool | None]
"""Parameters of a query. Those that are None are left out."""


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: Query = field(default_factory=dict)
    #: Sent as JSON.
    body: object = None
    #: Instead of `body`: a function that is called for each attempt and returns bytes or an iterable of bytes.
    content: Callable[[], Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    #: If it has no limit, the `timeout` of the client applies to the request.
    deadline: Deadline = field(default_factory=Deadline)
    #: Whether the request may be sent again after its answer was lost, because two requests have the same effect as
    #: one. None: true for every method except POST.
    is_repeatable: bool | None = None
    #: Whether there is only one attempt, because `content` can be opened only once.
    is_sent_once: bool = False
    #: If a 503 has one of these codes, the service has certainly not carried out the request.
    undone_codes: frozenset[str] = frozenset()

    @property
    def may_repeat(self) -> bool:
        return self.method != "POST" if self.is_repeatable is None else self.is_repeatable

    @property
    def target(self) -> str:
        """The path with its query."""
        given = [(name, _text(value)) for name, value in self.query.items() if value is not None]
        if not given:
            return self.path
        return f"{self.path}{'&' if '?' in self.path else '?'}{urlencode(given)}"

    def content_and_headers(self) -> tuple[Any, dict[str, str]]:
        """Returns the content for one attempt, and its headers."""
        if self.content is not None:
            return self.content(), {"content-type": "application/octet-stream", **self.headers}
        if self.body is not None:
            text = json.dumps(self.body, ensure_ascii=False, separators=(",", ":"))
            # Replace lone surrogates, which have no valid UTF-8. The service would refuse them anyway.
            return text.encode("utf-8", "replace"), {"content-type": "application/json", **self.headers}
        return None, dict(self.headers)


def parse_json(response: httpx.Response) -> Any:
    """The JSON of a successful answer."""
    try:
        return json.loads(response.content)
    except ValueError as error:
        raise not_the_service(response.status_code) from error


def not_the_service(status: int) -> SandbarError:
    detail = "the answer is not one of the API: is this the address of a Sandbar service?"
    return SandbarError(detail, status=status, code="unknown")


def error_of(status: int, reason: str, headers: Mapping[str, str], body: bytes) -> SandbarError:
    """Makes the exception for an error response."""
    try:
        told = json.loads(body)
    except ValueError:
        # The body is not JSON. Perhaps a proxy sent it.
        told = None
    told = told if isinstance(told, dict) else {}
    code = told.get("code")
    detail = told.get("detail")
    code = code if isinstance(code, str) else "unknown"
    return ERROR_CLASSES.get(code, SandbarError)(
        detail if isinstance(detail, str) else f"HTTP {status} {reason}".strip(),
        status=status,
        code=code,
        request_id=headers.get("x-request-id"),
        retry_after_sec=_seconds(headers.get("retry-after")),
    )


def _seconds(text: str | None) -> float | None:
    try:
        seconds = float(text) if text is not None else -1.0
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
