"""Files of a machine: read, write, list, move, remove, archive and watch them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Literal

from typing_extensions import NotRequired, TypedDict

from sandbar._async.content import Content, open_content
from sandbar._async.download import download
from sandbar._async.transport import AsyncTransport
from sandbar._deadline import Deadline
from sandbar._paths import encode_file_path, machine_path
from sandbar._platform_async import sleep
from sandbar._request import Request
from sandbar._retry import ReopenSchedule
from sandbar.errors import ConnectionError, SandbarError
from sandbar.models import FileEntry, FileList, FileUnpacked

#: An absolute path in a machine. Bytes name a file whose name is not valid UTF-8.
FilePath = str | bytes

#: The service refuses a move with these codes before it asks the machine, so nothing was moved.
_BEFORE_MOVE_CODES = frozenset({"fleet_capacity", "shutting_down"})


class FileEvent(TypedDict):
    """A change of a file. `overflow`: events were lost."""

    type: Literal["ready", "created", "changed", "removed", "renamed", "overflow"]
    path: NotRequired[str]
    # An event `renamed` also has the field `from`, the previous path.


class AsyncFiles:
    """The files of one machine."""

    def __init__(self, transport: AsyncTransport, machine_id: str) -> None:
        self._transport = transport
        self._url = f"{machine_path(machine_id)}/files"

    async def stream(
        self, path: FilePath, *, start: int = 0, end: int | None = None, timeout: float | None = None
    ) -> AsyncGenerator[bytes, None]:
        """
        Yields the bytes of a file, or of the part from byte `start` to byte `end`. When the connection breaks, it
        continues at the same byte, so it yields each byte exactly once. Raises FileChangedError when the file was
        changed meanwhile. Without `timeout` (seconds) there is no time limit as long as bytes arrive.
        """
        blocks = download(self._transport, self._of("/content", path), start, end, Deadline(timeout))
        try:
            async for block in blocks:
                yield block
        finally:
            await blocks.aclose()

    async def read(
        self, path: FilePath, *, start: int = 0, end: int | None = None, timeout: float | None = None
    ) -> bytes:
        """The bytes of a file, or of the part from byte `start` to byte `end`."""
        return b"".join([block async for block in self.stream(path, start=start, end=end, timeout=timeout)])

    async def read_text(self, path: FilePath, *, timeout: float | None = None) -> str:
        """The content of a file as UTF-8 text; other bytes are read as U+FFFD."""
        return (await self.read(path, timeout=timeout)).decode("utf-8", "replace")

    async def write(
        self,
        path: FilePath,
        content: Content,
        *,
        mode: int | None = None,
        user: str | None = None,
        parents: bool | None = None,
        overwrite: bool = True,
        timeout: float | None = None,
    ) -> FileEntry:
        """
        Writes a file and returns its entry. The file appears whole or not at all. `content`: bytes, text, a local file
        (a Path, or opened in binary mode) or an iterable of bytes. The write is repeated after a broken connection,
        unless the content can be read only once, or `overwrite` is false.

        `mode`: permission bits, such as 0o644; default: those of the replaced file, else 0o644. `user`: the owner, a
        name or uid; default: the owner of the replaced file, else root. `parents`: make missing directories of the
        path; default: true. With `overwrite=False`, raises ConflictError if the file exists. Without `timeout`
        (seconds) there is no time limit as long as bytes are sent.
        """
        opened = open_content(content)
        request = Request(
            "PUT",
            self._of("/content", path),
            query={"mode": _octal(mode), "user": user, "parents": parents},
            content=opened.open,
            headers={} if overwrite else {"if-none-match": "*"},
            is_repeatable=overwrite,
            is_sent_once=opened.is_sent_once,
            deadline=Deadline(timeout),
        )
        return await self._transport.json(FileEntry, request)

    async def stat(self, path: FilePath, *, timeout: float | None = None) -> FileEntry:
        """The entry of a file or directory. For a symlink it is the entry of the symlink itself."""
        request = Request("GET", self._of("/entry", path), deadline=Deadline(timeout))
        return await self._transport.json(FileEntry, request)

    async def entries(
        self, path: FilePath, *, depth: int | None = None, timeout: float | None = None
    ) -> AsyncGenerator[FileEntry, None]:
        """
        Yields the entries of a directory, sorted by the bytes of their paths. With `depth` 2 it also yields the entries
        of its directories. `timeout` (seconds) is for each page.
        """
        cursor: str | None = None
        while cursor != "":
            query = {"depth": depth, "cursor": cursor}
            request = Request("GET", self._of("", path), query=query, deadline=Deadline(timeout))
            page = await self._transport.json(FileList, request)
            for entry in page["entries"]:
                yield entry
            cursor = page["next_cursor"]

    async def remove(self, path: FilePath, *, recursive: bool | None = None, timeout: float | None = None) -> None:
        """Deletes a file or an empty directory; with `recursive` a directory with everything in it."""
        query = {"recursive": recursive}
        request = Request("DELETE", self._of("", path), query=query, deadline=Deadline(timeout))
        await self._transport.run(request, accept_not_found)

    async def mkdir(
        self, path: FilePath, *, mode: int | None = None, user: str | None = None, timeout: float | None = None
    ) -> FileEntry:
        """Makes a directory and its missing parents, and returns its entry. It is no error if the directory exists."""
        body = {"path_encoded": encode_file_path(path), "mode": _octal(mode), "user": user}
        return await self._post("directory", body, Deadline(timeout))

    async def move(
        self,
        source: FilePath,
        target: FilePath,
        *,
        overwrite: bool | None = None,
        timeout: float | None = None,
    ) -> FileEntry:
        """
        Moves a file or directory and returns its new entry. If something exists at `target`, raises ConflictError
        unless `overwrite` is true.

        When the answer is lost (ConnectionError, `host_unavailable`), the move is repeated. If `source` is missing at
        the second attempt and `target` exists, the move counts as done. This can be wrong: `target` may be an older
        file, and `source` may never have existed.
        """
        deadline = Deadline(timeout)
        body = {
            "from_encoded": encode_file_path(source),
            "to_encoded": encode_file_path(target),
            "overwrite": overwrite,
        }
        request = self._posted("move", body, deadline, undone_codes=_BEFORE_MOVE_CODES)

        async def find_earlier(refusal: SandbarError) -> FileEntry:
            if refusal.code == "not_found":
                # If something exists at the new path now, an earlier attempt has moved the file.
                try:
                    stat = Request("GET", self._of("/entry", target), deadline=deadline)
                    return await self._transport.json(FileEntry, stat)
                except SandbarError:
                    raise refusal from None
            raise refusal

        return await self._transport.json(FileEntry, request, find_earlier)

    async def archive(self, path: FilePath, *, timeout: float | None = None) -> AsyncGenerator[bytes, None]:
        """
        Yields a tar archive of a file, or of a directory with everything in it. Raises ConnectionError when the
        connection breaks, because an archive cannot be continued.
        """
        deadline = Deadline(timeout)
        headers = {"accept": "application/x-tar"}
        response = await self._transport.open(
            Request("GET", self._of("/archive", path), headers=headers, deadline=deadline)
        )
        blocks = self._transport.bytes_of(response, deadline)
        try:
            async for block in blocks:
                yield block
        finally:
            await blocks.aclose()

    async def unpack(
        self, path: FilePath, archive: Content, *, user: str | None = None, timeout: float | None = None
    ) -> FileUnpacked:
        """
        Unpacks a tar archive into a directory that exists. Does not unpack devices and entries that would leave the
        directory; the answer names them.
        """
        opened = open_content(archive)
        request = Request(
            "PUT",
            self._of("/archive", path),
            query={"user": user},
            content=opened.open,
            is_sent_once=opened.is_sent_once,
            deadline=Deadline(timeout),
        )
        return await self._transport.json(FileUnpacked, request)

    async def watch(
        self, path: FilePath, *, recursive: bool | None = None, timeout: float | None = None
    ) -> AsyncGenerator[FileEvent, None]:
        """
        Yields the changes of a file or directory: first `ready`, then each change, until the path itself is removed.
        When the connection breaks, connects again and yields `overflow`, because changes may have been missed.
        """
        deadline = Deadline(timeout)
        schedule = ReopenSchedule(self._transport.retry_for_sec)
        is_first = True
        while True:
            events = self._events(path, recursive, deadline, schedule)
            try:
                async for event in events:
                    schedule.note_progress()
                    yield event if is_first or event["type"] != "ready" else {"type": "overflow"}
                    is_first = False
                return
            except ConnectionError as error:
                pause_sec = schedule.pause_after(error)
                if pause_sec is None:
                    raise
            finally:
                await events.aclose()
            await sleep(pause_sec)

    async def list(self, path: FilePath, *, depth: int | None = None, timeout: float | None = None) -> list[FileEntry]:
        """Returns the entries of a directory, in the same order as `entries`."""
        return [entry async for entry in self.entries(path, depth=depth, timeout=timeout)]

    async def _events(
        self, path: FilePath, recursive: bool | None, deadline: Deadline, schedule: ReopenSchedule
    ) -> AsyncGenerator[FileEvent, None]:
        """Yields the events that come over one connection."""
        headers = {"accept": "text/event-stream"}
        query = {"recursive": recursive}
        request = Request("GET", self._of("/watch", path), query=query, headers=headers, deadline=deadline)
        response = await self._transport.open(request)
        schedule.note_open()
        events = self._transport.events_of(response, deadline)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()

    async def _post(self, operation: str, body: Mapping[str, object], deadline: Deadline) -> FileEntry:
        return await self._transport.json(FileEntry, self._posted(operation, body, deadline))

    def _posted(
        self,
        operation: str,
        body: Mapping[str, object],
        deadline: Deadline,
        undone_codes: frozenset[str] = frozenset(),
    ) -> Request:
        return Request(
            "POST",
            f"{self._url}/{operation}",
            body={name: value for name, value in body.items() if value is not None},
            is_repeatable=True,
            deadline=deadline,
            undone_codes=undone_codes,
        )

    def _of(self, operation: str, path: FilePath) -> str:
        return f"{self._url}{operation}?path={encode_file_path(path)}"


async def accept_not_found(refusal: SandbarError) -> None:
    """Accepts a 404 after a retry of a delete, because it means that the first request has deleted the resource."""
    if refusal.code != "not_found":
        raise refusal


def _octal(mode: int | None) -> str | None:
    return None if mode is None else f"{mode:04o}"
