"""One request of a client, and what its answer means."""

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
    #: Instead of `body`: returns the bytes, or an iterable of bytes, for each attempt anew.
    content: Callable[[], Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Without a limit the client's own applies to each request.
    deadline: Deadline = field(default_factory=Deadline)
    #: Whether the request may be sent again when its answer was lost, because sending it twice has the same effect as
    #: sending it once. None: for every method but POST.
    is_repeatable: bool | None = None
    #: Whether there is only one attempt, because `content` can be opened only once.
    is_sent_once: bool = False
    #: Codes of a 503 after which the service has certainly not carried out the request.
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
        """The content of one attempt, with the headers that describe it."""
        if self.content is not None:
            return self.content(), {"content-type": "application/octet-stream", **self.headers}
        if self.body is not None:
            text = json.dumps(self.body, ensure_ascii=False, separators=(",", ":"))
            # A lone surrogate is not valid UTF-8. The service would refuse it in any case.
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
    """The error that a refusal tells."""
    try:
        told = json.loads(body)
    except ValueError:
        # Not JSON, so it came, for example, from a proxy.
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
