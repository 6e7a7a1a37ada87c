"""Tests downloads after a broken connection, the repetition of uploads, watches of files, and the activity feed."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

import sandbar

from .clients import Kind, both, run, take
from .fault_server import FaultServer, content, events, refusal, reset, status

DATA = bytes(range(256)) * 40
ENTRY = {"path": "/f", "name": "f", "type": "file", "size": 1}


def read(client: Any) -> Any:
    return client.files("m").read("/f")


@both
def test_a_broken_download_goes_on_at_the_same_byte(kind: Kind) -> None:
    told: dict[str, Any] = {"etag": '"1"', "accept_ranges": "bytes"}
    answers = [
        content(DATA, sent=1000, **told),
        reset,
        content(DATA[1000:], sent=2000, code=206, **told),
        content(DATA[3000:], code=206, **told),
    ]
    with FaultServer(answers) as server:
        assert run(kind, server.url, read) == DATA
    ranges = [(request.headers.get("range"), request.headers.get("if-range")) for request in server.requests]
    assert ranges == [(None, None), ("bytes=1000-", '"1"'), ("bytes=1000-", '"1"'), ("bytes=3000-", '"1"')]
    # The client must ask for uncompressed bytes, because it cannot join a compressed part to the part before it.
    assert {request.headers["accept-encoding"] for request in server.requests} == {"identity"}


@both
def test_a_part_of_a_file_keeps_its_end_when_it_goes_on(kind: Kind) -> None:
    told: dict[str, Any] = {"etag": '"1"', "accept_ranges": "bytes"}
    answers = [content(DATA[10:31], sent=5, code=206, **told), content(DATA[15:31], code=206, **told)]
    with FaultServer(answers) as server:
        assert run(kind, server.url, lambda client: client.files("m").read("/f", start=10, end=30)) == DATA[10:31]
    assert [request.headers["range"] for request in server.requests] == ["bytes=10-30", "bytes=15-30"]


@both
@pytest.mark.parametrize(
    "second",
    [content(DATA, etag='"2"', accept_ranges="bytes"), refusal(416, "range_not_satisfiable")],
    ids=["another etag", "shorter"],
)
def test_a_file_that_was_changed_meanwhile_is_an_error(kind: Kind, second: Any) -> None:
    first = content(DATA, sent=1000, etag='"1"', accept_ranges="bytes")
    with FaultServer([first, second]) as server, pytest.raises(sandbar.FileChangedError):
        run(kind, server.url, read)


@both
def test_a_download_without_ranges_is_not_continued(kind: Kind) -> None:
    with FaultServer([content(DATA, sent=1000, etag='"1"')]) as server, pytest.raises(sandbar.ConnectionError):
        run(kind, server.url, read)
    assert len(server.requests) == 1


@both
def test_a_range_behind_the_end_is_refused(kind: Kind) -> None:
    with (
        FaultServer([refusal(416, "range_not_satisfiable")]) as server,
        pytest.raises(sandbar.RangeNotSatisfiableError),
    ):
        run(kind, server.url, lambda client: client.files("m").read("/f", start=9))


def local_file(folder: Path) -> Path:
    file = folder / "local"
    file.write_bytes(DATA)
    return file


class Unseekable(io.RawIOBase):
    def __init__(self) -> None:
        self._left = io.BytesIO(DATA)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._left.readinto(buffer)


def opened(folder: Path) -> Any:
    file = io.BytesIO(b"skipped" + DATA)
    file.seek(len(b"skipped"))
    return file


def pieces() -> Iterator[bytes]:
    yield DATA[:100]
    yield DATA[100:]


REPEATED: dict[str, Callable[[Path], Any]] = {
    "bytes": lambda _: DATA,
    "bytearray": lambda _: bytearray(DATA),
    "text": lambda _: DATA.decode("latin-1"),
    "path": local_file,
    "open file": opened,
    "function": lambda _: pieces,
}


@both
@pytest.mark.parametrize("make", REPEATED.values(), ids=REPEATED)
def test_an_upload_is_repeated_whole(kind: Kind, make: Callable[[Path], Any], tmp_path: Path) -> None:
    given = make(tmp_path)
    with FaultServer([reset, refusal(503, "shutting_down"), status(200, ENTRY)]) as server:
        assert run(kind, server.url, lambda client: client.files("m").write("/f", given)) == ENTRY
    sent = DATA.decode("latin-1").encode() if isinstance(given, str) else DATA
    assert [request.body for request in server.requests] == [sent] * 3
    assert "if-none-match" not in server.requests[0].headers


@both
@pytest.mark.parametrize("make", [pieces, lambda: io.BufferedReader(Unseekable())], ids=["iterable", "pipe"])
def test_content_that_can_be_read_only_once_is_not_sent_again(kind: Kind, make: Callable[[], Any]) -> None:
    with FaultServer([status(200, ENTRY)]) as server:
        run(kind, server.url, lambda client: client.files("m").write("/f", make()))
    assert server.requests[0].body == DATA
    with FaultServer([refusal(503, "shutting_down")]) as server, pytest.raises(sandbar.ShuttingDownError):
        run(kind, server.url, lambda client: client.files("m").write("/f", make()))
    assert len(server.requests) == 1


@both
def test_large_content_arrives_whole(kind: Kind) -> None:
    large = DATA * 500
    with FaultServer([status(200, ENTRY)]) as server:
        run(kind, server.url, lambda client: client.files("m").write("/f", large))
    assert server.requests[0].body == large


@both
def test_a_write_that_must_not_overwrite_is_not_repeated_after_a_lost_answer(kind: Kind) -> None:
    with FaultServer([reset]) as server, pytest.raises(sandbar.ConnectionError):
        run(kind, server.url, lambda client: client.files("m").write("/f", b"x", overwrite=False))
    assert [request.headers["if-none-match"] for request in server.requests] == ["*"]


@both
def test_the_error_of_the_content_is_raised_as_it_is(kind: Kind, tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"x"
        raise ZeroDivisionError

    with FaultServer([status(200, ENTRY)]) as server:
        with pytest.raises(ZeroDivisionError):
            run(kind, server.url, lambda client: client.files("m").write("/f", broken))
        with pytest.raises(FileNotFoundError):
            run(kind, server.url, lambda client: client.files("m").write("/f", tmp_path / "absent"))
        with pytest.raises(TypeError, match="open it with mode 'rb'"):
            run(kind, server.url, lambda client: client.files("m").write("/f", io.StringIO("x")))
    assert server.requests == []


@both
def test_an_asynchronous_iterable_is_sent_by_the_asynchronous_client(kind: Kind) -> None:
    if kind == "sync":
        return

    async def blocks() -> Any:
        yield DATA

    with FaultServer([status(200, ENTRY)]) as server:
        run(kind, server.url, lambda client: client.files("m").write("/f", blocks()))
    assert server.requests[0].body == DATA


@both
def test_paths_and_options_travel_as_they_are(kind: Kind) -> None:
    with FaultServer([status(200, ENTRY)] * 3) as server:
        run(kind, server.url, lambda client: client.files("m").write("/a b/ü?", b"", mode=0o640, parents=False))
        run(kind, server.url, lambda client: client.files("m").stat(b"/\xff"))
        run(kind, server.url, lambda client: client.files("m").mkdir("/d", mode=0o700))
    first, second, third = server.requests
    assert first.target == "/v1/machines/m/files/content?path=/a%20b/%C3%BC%3F&mode=0640&parents=false"
    assert second.target == "/v1/machines/m/files/entry?path=/%FF"
    assert third.json == {"path_encoded": "/d", "mode": "0700"}


def test_the_exact_path_of_an_entry() -> None:
    entry: Any = {"path": "/\ufffd", "path_encoded": "/%FF"}
    assert sandbar.path_of(entry) == b"/\xff"
    plain: Any = {"path": "/f"}
    assert sandbar.path_of(plain) == "/f"


@both
def test_a_move_whose_answer_was_lost_returns_the_new_entry(kind: Kind) -> None:
    with FaultServer([reset, refusal(404, "not_found"), status(200, ENTRY)]) as server:
        assert run(kind, server.url, lambda client: client.files("m").move("/a", "/f")) == ENTRY
    answers = [reset, refusal(404, "not_found"), refusal(404, "not_found")]
    with FaultServer(answers) as server, pytest.raises(sandbar.NotFoundError):
        run(kind, server.url, lambda client: client.files("m").move("/a", "/f"))


@both
def test_a_move_that_the_service_refused_and_did_not_carry_out_is_not_counted_as_done(kind: Kind) -> None:
    answers = [refusal(503, "shutting_down"), refusal(404, "not_found"), status(200, ENTRY)]
    with FaultServer(answers) as server, pytest.raises(sandbar.NotFoundError):
        run(kind, server.url, lambda client: client.files("m").move("/a", "/f"))


@both
def test_a_directory_is_listed_page_by_page(kind: Kind) -> None:
    pages = [{"entries": [1, 2], "next_cursor": "c"}, {"entries": [3], "next_cursor": ""}]
    with FaultServer([status(200, page) for page in pages]) as server:
        assert run(kind, server.url, lambda client: client.files("m").list("/d", depth=2)) == [1, 2, 3]
    assert server.requests[1].target == "/v1/machines/m/files?path=/d&depth=2&cursor=c"


@both
def test_a_broken_archive_is_a_connection_error(kind: Kind) -> None:
    with FaultServer([content(DATA, sent=10)]) as server, pytest.raises(sandbar.ConnectionError):
        run(kind, server.url, lambda client: client.files("m").archive("/d"))
    assert len(server.requests) == 1


@both
def test_a_watch_that_broke_says_that_events_may_be_lost(kind: Kind) -> None:
    change = {"type": "created", "path": "/d/f"}
    answers = [
        events({"type": "ready"}, change, then=reset),
        refusal(503, "shutting_down"),
        events({"type": "ready"}, change),
    ]
    with FaultServer(answers) as server:
        seen = take(kind, server.url, 4, lambda client: client.files("m").watch("/d", recursive=True))
    assert seen == [{"type": "ready"}, change, {"type": "overflow"}, change]
    assert server.requests[0].target == "/v1/machines/m/files/watch?path=/d&recursive=true"


@both
def test_new_entries_of_the_activity_come_once_and_oldest_first(kind: Kind) -> None:
    def entry(second: int, action: str = "exec") -> dict[str, object]:
        made = f"2026-01-02T03:04:{second:02}.000Z"
        return {"action": action, "actor": "user", "metadata": {}, "created_at": made}

    def page(*entries: object) -> Any:
        return status(200, {"activity": [*entries], "next_cursor": ""})

    answers = [
        page(entry(20)),
        # Nothing new; then two new equal entries and a newer entry; then an entry that comes late, with an older time.
        page(entry(20)),
        page(entry(22), entry(21), entry(21), entry(20)),
        page(entry(22), entry(21), entry(21), entry(20), entry(19)),
    ]
    with FaultServer(answers) as server:
        seen = take(kind, server.url, 4, lambda client: client.activity.follow())
    assert seen == [entry(21), entry(21), entry(22), entry(19)]
    assert "from=2026-01-02T03%3A04%3A10.000Z" in server.requests[1].target


@both
@pytest.mark.parametrize("begin", ["2026-01-02T03:04:18Z", "2026-01-02T04:04:18.00+01:00"])
def test_activity_that_is_followed_from_a_time_has_nothing_older(kind: Kind, begin: str) -> None:
    def page(*seconds: int) -> Any:
        made = [{"action": f"{n}", "created_at": f"2026-01-02T03:04:{n}.000Z"} for n in seconds]
        return status(200, {"activity": made, "next_cursor": ""})

    with FaultServer([page(), page(20), page(29, 20), page(39, 29, 20)]) as server:
        seen = take(kind, server.url, 3, lambda client: client.activity.follow(from_=begin))
    assert [entry["action"] for entry in seen] == ["20", "29", "39"]
    asked = [parse_qs(request.target.partition("?")[2])["from"] for request in server.requests]
    assert asked == [[begin], [begin], [begin], ["2026-01-02T03:04:19.000Z"]]
