"""Tells new entries of the activity feed from those that were seen before. Entries have no id."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from .models import ActivityEntry

#: An entry may become visible later than an entry with a newer time, by at most this long, seconds.
OVERLAP_SEC = 10


class FeedPosition:
    """Remembers the entries of the last seconds before the newest one. `begin`: no entry is older, RFC 3339."""

    def __init__(self, begin: str | None) -> None:
        self._begin = begin
        self._newest: datetime | None = None
        self._seen: Counter[str] = Counter()

    @property
    def since(self) -> str | None:
        """The time from which entries are asked for, RFC 3339."""
        if self._newest is None:
            return self._begin
        since = self._newest - timedelta(seconds=OVERLAP_SEC)
        if self._begin is not None and since < _time(self._begin):
            return self._begin
        return since.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def skip(self, entries: Sequence[ActivityEntry]) -> None:
        """Counts the entries as seen. They come newest first."""
        self.fresh(entries)

    def fresh(self, entries: Sequence[ActivityEntry]) -> list[ActivityEntry]:
        """The entries that were not seen before, oldest first. `entries`: all since `since`, newest first."""
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
