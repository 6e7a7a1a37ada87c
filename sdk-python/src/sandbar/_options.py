"""Keyword arguments that several calls share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from typing_extensions import TypedDict


class ClientOptions(TypedDict, total=False):
    base_url: str | None
    """Default: `SANDBAR_BASE_URL`, else the address in a credentials file."""
    api_key: str | None
    """Default: `SANDBAR_API_KEY`, else the key in the credentials file with that address."""
    user_agent: str | None
    """The name of the calling program, put before the client's own User-Agent."""
    retry_for_sec: float
    """How long a call is retried after a broken connection, a 429 or a 503, from the first failure on. Default: 60."""


class ExecOptions(TypedDict, total=False):
    cwd: str
    """An absolute path. Default: the image's working directory, else the user's home."""
    env: dict[str, str]
    user: str
    """A name or uid. Default: the image's user, else root."""
    name: str
    """A label of the job."""
    stdin: str | bytes
    """What the command reads as its standard input."""
    timeout_sec: int
    """The service ends the command after so many seconds: 1 to 86400, default 3600."""
    merge_output: bool
    """Put stderr into stdout, in the order written."""


class SandboxChanges(TypedDict, total=False):
    name: str
    metadata: dict[str, object]
    """Replaces all metadata of the machine."""
    expires_in_sec: int | None
    """Counts from now; None: never."""
    on_expiry: Literal["destroy", "stop"]


class ActivityFilter(TypedDict, total=False):
    category: Literal["machine", "exec", "volume", "snapshot"]
    q: str
    from_: str
    """The oldest created_at (RFC 3339), inclusive."""
    to: str
    """The newest created_at, inclusive."""
    machine_id: str


class UsageFilter(TypedDict, total=False):
    from_: str
    """RFC 3339. Default: the beginning of this month (UTC)."""
    to: str
    """The end, exclusive. Default: now."""
    group_by: str
    """`kind` (default), `resource`, `day` or `metadata.KEY`."""
    machine_id: str


class LedgerFilter(TypedDict, total=False):
    kind: str
    from_: str
    to: str


class TerminalEvents(TypedDict, total=False):
    on_disconnect: Callable[[str], None]
    """Called with the reason when the connection breaks. Input then waits until there is a new connection."""
    on_reconnect: Callable[[], None]
    on_gap: Callable[[int], None]
    """Called with the number of bytes of output that are lost: a terminal keeps the last 256 KiB of its output."""


class OpenTerminal(TerminalEvents, total=False):
    cols: int
    rows: int
    terminal_id: str
    """A terminal that runs already. The connection joins it, and first gets the last 256 KiB of its output."""
    command: list[str]
    """What to run in place of the user's login shell."""
    env: dict[str, str]
    cwd: str
    user: str
