"""Finds the entries of the activity feed that the client has not seen yet. Entries have no id to compare."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from .models import ActivityEntry

#: An entry can appear in the feed after an entry with a newer time, but at most this many seconds later.
OVERLAP_SEC = 10


class FeedPosition:
    """Remembers the newest entry and those of the seconds before it. `begin` (RFC 3339): entries start at this time."""

    def __init__(self, begin: str | None) -> None:
        self._begin = begin
        self._newest: datetime | None = None
        self._seen: Counter[str] = Counter()

    @property
    def since(self) -> str | None:
        """The time (RFC 3339) from which the next request must ask for entries."""
        if self._newest is None:
            return self._begin
        since = self._newest - timedelta(seconds=OVERLAP_SEC)
        if self._begin is not None and since < _time(self._begin):
            return self._begin
        return since.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def skip(self, entries: Sequence[ActivityEntry]) -> None:
        """Marks the entries as seen. `entries`: newest first."""
        self.fresh(entries)

    def fresh(self, entries: Sequence[ActivityEntry]) -> list[ActivityEntry]:
        """Returns the entries that were not seen before, oldest first. `entries`: all since `since`, newest first."""
        before = self._seen.copy()
        fresh: list[ActivityEntry] = []
        seen: Counter[str] = Counter()
        for entry in reversed(entries):
            key = json.dumps(entry, sort_keys=True)
            seen[key] += 1
            if seen[key] > before[key]:
                fresh.append(entry)
        self._seen = seen | before
        if entries:
            newest = _time_of(entries[0])
            self._newest = newest if self._newest is None else max(newest, self._newest)
            horizon = self._newest - timedelta(seconds=OVERLAP_SEC)
            self._seen = Counter({key: n for key, n in self._seen.items() if _time_of(json.loads(key)) >= horizon})
        return fresh


def _time_of(entry: ActivityEntry) -> datetime:
    return _time(entry["created_at"])


def _time(text: str) -> datetime:
    """A time that the service gave or accepted."""
    # `fromisoformat` of Python 3.10 does not accept `Z`, and accepts fractions of a second only with 3 or 6 digits.
    match = re.fullmatch(r"([^.]+?)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)", text)
    if match is None:
        raise ValueError(f"{text} is not a time of RFC 3339")
    whole, fraction, zone = match.groups("")
    return datetime.fromisoformat(f"{whole}.{fraction[:6]:0<6}{'+00:00' if zone in 'Zz' else zone}")
