"""Makes URL paths for the API. Paths of files are sent as percent-encoded bytes, because Linux names files by bytes."""

from __future__ import annotations

from urllib.parse import quote, unquote_to_bytes

from .models import FileEntry


def part(text: str) -> str:
    """Encodes one part of a path, such as an id. It also encodes `/`, so an id cannot lead to another API path."""
    return quote(text, safe="")


def machine_path(machine_id: str) -> str:
    return f"/v1/machines/{part(machine_id)}"


def exec_path(machine_id: str, exec_id: str) -> str:
    return f"{machine_path(machine_id)}/execs/{part(exec_id)}"


def encode_file_path(path: str | bytes) -> str:
    return quote(path, safe="/~")


def path_of(entry: FileEntry) -> str | bytes:
    """Returns the exact path of an entry, as bytes if the path is not valid UTF-8."""
    encoded = entry.get("path_encoded")
    return entry["path"] if encoded is None else unquote_to_bytes(encoded)
