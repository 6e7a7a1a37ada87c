"""Tests the SDK with a real service and real machines. Needs `-m live`, SANDBAR_BASE_URL and SANDBAR_API_KEY."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

import sandbar
from sandbar import AsyncClient, AsyncSandbox, Client, Sandbox

from .cutting_proxy import CuttingProxy

pytestmark = pytest.mark.live

ABSENT = "00000000-0000-7000-8000-000000000000"
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def service() -> tuple[str, str]:
    url, key = os.environ.get("SANDBAR_BASE_URL"), os.environ.get("SANDBAR_API_KEY")
    assert url, "SANDBAR_BASE_URL is not set"
    assert key, "SANDBAR_API_KEY is not set"
    return url, key


@pytest.fixture(scope="module")
def client(service: tuple[str, str]) -> Iterator[Client]:
    with Client(user_agent="sdk-tests/1") as client:
        yield client


@pytest.fixture(scope="module")
def sandbox(client: Client) -> Iterator[Sandbox]:
    with Sandbox.create(client=client, memory_mb=512, rootfs_size_gb=3, metadata={"run": "sdk"}) as sandbox:
        yield sandbox


README = Path(__file__).resolve().parent.parent / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
PRINTED = [rb"0 42\n\n0\n1\n2\nhttp://8000-\S+\n", rb"\[0, 1, 4, 9\]\n"]


@pytest.mark.parametrize("number", range(len(PRINTED)))
def test_the_example_of_the_readme_runs_as_written(number: int, service: tuple[str, str], tmp_path: Path) -> None:
    assert len(EXAMPLES) == len(PRINTED)
    (tmp_path / "example.py").write_text(EXAMPLES[number])
    env = {**os.environ, "PYTHONPATH": str(README.parent / "src")}
    command = [sys.executable, "-W", "error", "example.py"]
    result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=False)
    assert result.returncode == 0, result.stderr.decode()
    assert re.fullmatch(PRINTED[number], result.stdout), result.stdout


def test_a_command_returns_what_it_wrote_and_how_it_ended(sandbox: Sandbox) -> None:
    result = sandbox.exec("echo out; echo err >&2; exit 3", name="three")
    assert (result.exit_code, result.stdout, result.stderr, result.combined) == (3, "out\n", "err\n", "out\nerr\n")
    assert (result.signal, result.timed_out, result.truncated) == (None, False, False)
    assert (
        sandbox.exec(["sh", "-c", "echo $A; pwd; cat"], env={"A": "1"}, cwd="/tmp", stdin="in").stdout == "1\n/tmp\nin"
    )
    merged = sandbox.exec("echo 1; echo 2 >&2; echo 3", merge_output=True)
    assert (merged.combined, merged.stderr) == ("1\n2\n3\n", "")
    killed = sandbox.exec("kill -USR1 $$")
    assert (killed.signal, killed.exit_code) == ("SIGUSR1", 138)
    late = sandbox.exec("sleep 100", timeout_sec=1)
    assert (late.timed_out, late.exit_code) == (True, 124)
    assert any(job["name"] == "three" for job in sandbox.jobs())


def test_more_stdin_than_one_request_takes(sandbox: Sandbox) -> None:
    stdin = os.urandom(3 * MIB)
    assert sandbox.exec("sha256sum", stdin=stdin).stdout.split()[0] == hashlib.sha256(stdin).hexdigest()
    assert sandbox.exec("head -c 1 | wc -c", stdin=stdin).stdout.strip() == "1"


def test_a_job_is_driven_and_cancelled(sandbox: Sandbox) -> None:
    job = sandbox.start(["cat"], stdin_open=True)
    job.stdin.write("one\n")
    output = job.output()
    first = next(output)
    assert (first.stream, first.offset, first.data) == ("stdout", 0, b"one\n")
    again = sandbox.job(job.id)
    again.stdin.write(b"two\n")
    again.stdin.close()
    assert b"".join(chunk.data for chunk in output) == b"two\n"
    assert job.result().stdout == "one\ntwo\n"
    sleeping = sandbox.start("exec sleep 100")
    assert sleeping.info()["status"] == "running"
    assert sleeping.signal("TERM")["id"] == sleeping.id
    assert sleeping.wait()["signal"] == "SIGTERM"
    cancelled = sandbox.start("sleep 100")
    cancelled.cancel()
    assert cancelled.wait()["status"] == "canceled"


def test_a_reader_may_stop_in_the_middle(sandbox: Sandbox) -> None:
    job = sandbox.start("echo ready; echo warned >&2; sleep 100")
    output = job.output()
    assert next(output).data in (b"ready\n", b"warned\n")
    output.close()
    assert job.cancel()["id"] == job.id


#: The output of a job: numbered blocks of random bytes, so that a missing or repeated part shows.
BLOCK = os.urandom(MIB)
BLOCK_BYTES = 8 + MIB
BLOCKS = 96
#: The asynchronous client reads only the blocks from this one on.
LAST_BLOCKS = 76


def expected_digest(first: int) -> str:
    """The SHA-256 digest of the blocks from `first` on."""
    digest = hashlib.sha256()
    for number in range(first, BLOCKS):
        digest.update(b"%08d" % number + BLOCK)
    return digest.hexdigest()


def cuts_of(total: int) -> list[int]:
    """Returns ten positions at which to cut the connections, spread over the base64 text of `total` bytes."""
    return [int(total * 4 / 3 * share / 11) for share in range(1, 11)]


@pytest.fixture(scope="module")
def hundred_mb(sandbox: Sandbox) -> str:
    """Starts a job that writes 100 MB, and returns its id."""
    sandbox.files.write("/root/block", BLOCK)
    return sandbox.start(f"for n in $(seq 0 {BLOCKS - 1}); do printf %08d $n; cat /root/block; done").id


def test_output_is_exact_when_the_connection_is_cut_ten_times(
    service: tuple[str, str], sandbox: Sandbox, hundred_mb: str
) -> None:
    digest = hashlib.sha256()
    position = 0
    cutting = CuttingProxy(service[0], cuts_of(BLOCKS * BLOCK_BYTES))
    with cutting as proxy, Client(base_url=proxy.url, api_key=service[1]) as client:
        for chunk in client.sandbox(sandbox.id).job(hundred_mb).output():
            assert chunk.offset == position
            position += len(chunk.data)
            digest.update(chunk.data)
    assert (proxy.cuts, position, digest.hexdigest()) == (10, BLOCKS * BLOCK_BYTES, expected_digest(0))


def test_output_is_exact_when_the_connection_is_cut_ten_times_with_asyncio(
    service: tuple[str, str], sandbox: Sandbox, hundred_mb: str
) -> None:
    start = LAST_BLOCKS * BLOCK_BYTES

    async def read(url: str) -> tuple[int, str]:
        digest = hashlib.sha256()
        position = start
        async with AsyncClient(base_url=url, api_key=service[1]) as client:
            async for chunk in client.sandbox(sandbox.id).job(hundred_mb).output("stdout", offset=start):
                assert chunk.offset == position
                position += len(chunk.data)
                digest.update(chunk.data)
        return position, digest.hexdigest()

    with CuttingProxy(service[0], cuts_of(BLOCKS * BLOCK_BYTES - start)) as proxy:
        assert asyncio.run(read(proxy.url)) == (BLOCKS * BLOCK_BYTES, expected_digest(LAST_BLOCKS))
    assert proxy.cuts == 10


def test_files(sandbox: Sandbox, tmp_path: Path) -> None:
    files = sandbox.files
    data = os.urandom(5 * MIB)
    entry = files.write("/root/d/data", data, mode=0o600)
    assert (entry["size"], entry["mode"], entry["path"]) == (len(data), "0600", "/root/d/data")
    assert files.read("/root/d/data") == data
    assert files.read("/root/d/data", start=10, end=19) == data[10:20]
    (tmp_path / "local").write_bytes(data)
    files.write("/root/d/local", tmp_path / "local")
    with (tmp_path / "local").open("rb") as file:
        files.write("/root/d/open", file)
    files.write("/root/d/pieces", (data[at : at + 1000] for at in range(0, len(data), 1000)))
    sums = {line.split()[0] for line in sandbox.exec("sha256sum /root/d/*").stdout.splitlines()}
    assert sums == {hashlib.sha256(data).hexdigest()}
    files.write("/root/d/text", "grüß")
    assert files.read_text("/root/d/text") == "grüß"
    with pytest.raises(sandbar.ConflictError):
        files.write("/root/d/text", "", overwrite=False)
    files.write(b"/root/d/\xff", b"")
    assert b"/root/d/\xff" in [sandbar.path_of(one) for one in files.list("/root/d")]
    assert files.stat(b"/root/d/\xff")["size"] == 0
    files.mkdir("/root/e/f")
    assert files.move("/root/d/text", "/root/e/f/text")["path"] == "/root/e/f/text"
    archive = b"".join(files.archive("/root/e"))
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert any(name.endswith("f/text") for name in tar.getnames())
    files.mkdir("/root/copy")
    assert files.unpack("/root/copy", archive)["refused_count"] == 0
    files.remove("/root/d", recursive=True)
    with pytest.raises(sandbar.NotFoundError):
        files.stat("/root/d")


def test_a_download_is_exact_when_the_connection_is_cut(service: tuple[str, str], sandbox: Sandbox) -> None:
    sandbox.exec("head -c 20000000 /dev/urandom > /root/big", timeout_sec=60)
    expected = sandbox.exec("sha256sum /root/big").stdout.split()[0]
    cuts = [2_000_000, 9_000_000, 15_000_000]
    with CuttingProxy(service[0], cuts) as proxy, Client(base_url=proxy.url, api_key=service[1]) as client:
        assert hashlib.sha256(client.files(sandbox.id).read("/root/big")).hexdigest() == expected
    assert proxy.cuts == 3


def test_changes_of_files_are_watched(sandbox: Sandbox) -> None:
    sandbox.files.mkdir("/root/watched")
    events = sandbox.files.watch("/root/watched")
    assert next(events)["type"] == "ready"
    sandbox.files.write("/root/watched/new", "x")
    assert any(event.get("path") == "/root/watched/new" for event in events)
    events.close()


def test_a_port_is_reached_by_its_url_and_by_a_connection(sandbox: Sandbox) -> None:
    sandbox.files.write("/root/www/index.html", "hello from inside")
    server = sandbox.start("exec python3 -m http.server 8000 --directory /root/www")
    listening = "until (: > /dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.1; done"
    assert sandbox.exec(["bash", "-c", listening], timeout_sec=60).exit_code == 0
    assert [port["port"] for port in sandbox.ports.list()] == [8000]
    url = urlsplit(sandbox.ports.url(8000, expires_in_sec=60))
    assert url.query.startswith("sandbar_token=")
    # Browsers resolve names below localhost to this computer, but not every system does. So send the request to the
    # address of the service, with the name in the Host header.
    headers = {"host": url.netloc, "x-sandbar-key": sandbox.ports.token(8000)["token"]}
    assert httpx.get(f"{sandbox.client.base_url}/", headers=headers).text == "hello from inside"
    assert sandbox.ports.set_access(8000, "public")["access"] == "public"
    assert sandbox.ports.set_access(8000, "private")["access"] == "private"
    with sandbox.ports.connect(8000) as port:
        port.write(b"GET / HTTP/1.0\r\n\r\n")
        answer_bytes = b""
        while part := port.read():
            answer_bytes += part
    assert answer_bytes.endswith(b"hello from inside")
    server.cancel()
    # Wait for the end of the processes, because `cancel` returns before that.
    server.wait()
    with pytest.raises(sandbar.PortNotOpenError):
        sandbox.ports.connect(8000)


def test_a_terminal(sandbox: Sandbox) -> None:
    with sandbox.terminal(cols=100, rows=30, command=["bash", "--norc"]) as terminal:
        terminal.write("echo $((6*7)); stty size\n")
        seen = b""
        while b"30 100" not in seen:
            seen += terminal.read(timeout=30)
        assert b"42" in seen
        assert [one["id"] for one in sandbox.client.terminals.list(sandbox.id)] == [terminal.id]
        with sandbox.terminal(terminal_id=terminal.id) as other:
            joined = b""
            while b"30 100" not in joined:
                joined += other.read(timeout=30)
        terminal.write("exit 5\n")
        for _ in terminal:
            pass
        assert terminal.exit == sandbar.TerminalExit(5, None)


def test_volumes_and_snapshots(client: Client) -> None:
    with Sandbox.create(client=client, memory_mb=256, rootfs_size_gb=2, name="sdk-volumes") as sandbox:
        volume = client.volumes.create(name="sdk", size_gb=5)
        try:
            attached = client.volumes.attach(volume["id"], machine_id=sandbox.id, mount_path="/mnt/v")
            assert (attached["state"], attached["machine_id"]) == ("attached", sandbox.id)
            assert sandbox.exec("echo kept > /mnt/v/f && sync").exit_code == 0
            with pytest.raises(sandbar.ConflictError):
                client.volumes.delete(volume["id"])
            assert client.volumes.detach(volume["id"])["state"] == "available"
            assert volume["id"] in [one["id"] for one in client.volumes.list(kind="data", state="available")]
        finally:
            if client.volumes.get(volume["id"])["state"] == "available":
                client.volumes.delete(volume["id"])
        sandbox.files.write("/root/state", "before")
        snapshot = sandbox.snapshot(name="s")
        try:
            assert [one["id"] for one in client.snapshots.list(machine_id=sandbox.id)] == [snapshot["id"]]
            sandbox.files.write("/root/state", "after")
            with Sandbox.create(client=client, memory_mb=256, snapshot_id=snapshot["id"]) as copy:
                assert copy.files.read_text("/root/state") == "before"
            with pytest.raises(sandbar.ConflictError):
                sandbox.destroy()
            client.snapshots.restore(snapshot["id"])
            assert sandbox.files.read_text("/root/state") == "before"
        finally:
            client.snapshots.delete(snapshot["id"])


def test_the_life_of_a_machine(client: Client) -> None:
    sandbox = Sandbox.create(client=client, memory_mb=256, rootfs_size_gb=2, name="sdk-life", env={"GREETING": "hi"})
    assert sandbox.exec("echo $GREETING").stdout == "hi\n"
    assert Sandbox.connect(sandbox.id, client=client).id == sandbox.id
    assert sandbox.id in [one.id for one in Sandbox.list(name="sdk-life", client=client)]
    changed = sandbox.update(name="renamed", metadata={"a": "1"}, expires_in_sec=600)
    assert (changed["name"], changed["metadata"]) == ("renamed", {"a": "1"})
    assert changed["expires_at"] is not None
    assert sandbox.update(expires_in_sec=None)["expires_at"] is None
    running = sandbox.start("sleep 1000")
    assert sandbox.stop()["state"] == "stopped"
    with pytest.raises(sandbar.JobLostError):
        running.result()
    with pytest.raises(sandbar.ConflictError):
        sandbox.exec("true")
    assert sandbox.resume()["state"] == "running"
    sandbox.destroy()
    sandbox.destroy()
    assert sandbox.info()["state"] == "destroyed"
    with pytest.raises(sandbar.NotFoundError):
        Sandbox.connect(sandbox.id, client=client)


def test_a_replayed_create_returns_the_same_machine(client: Client) -> None:
    first = client.machines.create(memory_mb=256, rootfs_size_gb=2, idempotency_key="sdk-python-live")
    try:
        again = client.machines.create(memory_mb=256, rootfs_size_gb=2, idempotency_key="sdk-python-live")
        assert again["id"] == first["id"]
        with pytest.raises(sandbar.ConflictError):
            client.machines.create(memory_mb=512, idempotency_key="sdk-python-live")
    finally:
        client.machines.destroy(first["id"])


def test_the_account(client: Client) -> None:
    assert client.account.get()["email"]
    assert client.quotas.get()["quotas"]
    assert "base" in [image["stack"] for image in client.images.list()]
    assert client.request("GET", "/v1/images").json()["images"]
    assert client.billing.usage(group_by="resource")["currency"] == "EUR"
    assert client.billing.usage_csv().splitlines()
    assert client.billing.ledger_page(page_size=1)["entries"] is not None
    assert list(client.billing.ledger()) is not None
    page = client.activity.page(page_size=1)
    assert len(page["activity"]) == 1
    entries = client.activity.list(category="machine")
    assert next(entries)["action"].startswith("machine.")


def test_the_activity_is_followed(client: Client) -> None:
    volume = client.volumes.create(size_gb=5)
    feed = client.activity.follow(category="volume", from_=volume["created_at"])
    assert next(feed)["metadata"]["volume_id"] == volume["id"]
    client.volumes.delete(volume["id"])
    assert next(feed)["action"] == "volume.deleted"
    feed.close()


def test_errors_of_the_service_are_raised_as_their_classes(service: tuple[str, str], client: Client) -> None:
    with Sandbox.create(client=client, memory_mb=256, rootfs_size_gb=2) as sandbox:
        with pytest.raises(sandbar.ValidationError, match="vcpus") as caught:
            client.machines.create(vcpus=0)
        assert (caught.value.status, caught.value.code) == (400, "validation_error")
        assert caught.value.request_id
        with pytest.raises(sandbar.ValidationError):
            client.machines.create(unknown=1)  # type: ignore[call-arg]
        with Client(base_url=service[0], api_key="sbr_wrong") as stranger, pytest.raises(sandbar.UnauthenticatedError):
            stranger.account.get()
        with pytest.raises(sandbar.ForbiddenError):
            client.api_keys.list()
        with pytest.raises(sandbar.NotFoundError):
            client.machines.get(ABSENT)
        with pytest.raises(sandbar.NotFoundError):
            client.machines.get("../x")
        with pytest.raises(sandbar.MethodNotAllowedError):
            client.request("PUT", "/v1/quotas")
        with pytest.raises(sandbar.ConflictError):
            client.execs.start(sandbox.id, command="true", exec_id=client.execs.start(sandbox.id, command="true")["id"])
        with pytest.raises(sandbar.EndpointRetiredError):
            client.request("POST", f"/v1/machines/{sandbox.id}/exec", body={})
        with pytest.raises(sandbar.PayloadTooLargeError):
            client.machines.create(metadata={"x": "y" * 2 * MIB})
        with pytest.raises(sandbar.UnsupportedMediaTypeError):
            client.request("POST", "/v1/machines", body={}, headers={"content-type": "text/plain"})
        sandbox.files.write("/root/short", "12345")
        with pytest.raises(sandbar.RangeNotSatisfiableError):
            sandbox.files.read("/root/short", start=99)
        with pytest.raises(sandbar.PortNotOpenError):
            sandbox.ports.connect(9)
        fill = "fallocate -l $(($(df --output=avail -B1 / | tail -1) - 20000000)) /root/fill"
        assert sandbox.exec(fill).exit_code == 0
        with pytest.raises(sandbar.DiskFullError):
            sandbox.files.write("/root/too-big", (b"\0" * MIB for _ in range(64)))
        with pytest.raises(sandbar.TimeoutError):
            sandbox.exec("sleep 100", timeout=0.5, timeout_sec=5)


def test_the_asynchronous_client_does_the_same(service: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "local").write_text("local")

    async def main() -> None:
        async with await AsyncSandbox.create(memory_mb=256, rootfs_size_gb=2, name="sdk-async") as sandbox:
            results = await asyncio.gather(*(sandbox.exec(["echo", str(n)]) for n in range(8)))
            assert [result.stdout for result in results] == [f"{n}\n" for n in range(8)]
            await sandbox.files.write("/root/f", tmp_path / "local")
            assert await sandbox.files.read_text("/root/f") == "local"
            job = await sandbox.start("cat; echo done >&2", stdin_open=True)
            await job.stdin.write("x")
            await job.stdin.close()
            chunks = {chunk.stream: chunk.data async for chunk in job.output()}
            assert chunks == {"stdout": b"x", "stderr": b"done\n"}
            async with await sandbox.terminal(command=["sh"]) as terminal:
                await terminal.write("exit 4\n")
                async for _ in terminal:
                    pass
                assert terminal.exit == sandbar.TerminalExit(4, None)
            waiting = asyncio.create_task(sandbox.exec("sleep 100"))
            await asyncio.sleep(0.2)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert (await sandbox.exec("true")).exit_code == 0
            async with AsyncClient() as client:
                assert sandbox.id in [one.id for one in await AsyncSandbox.list(name="sdk-async", client=client)]
                actions = [entry["action"] async for entry in client.activity.list(machine_id=sandbox.id)]
                assert "machine.created" in actions

    asyncio.run(main(), debug=False)
