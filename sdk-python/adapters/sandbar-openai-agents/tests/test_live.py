"""
Tests sessions with a real machine, as the Agents SDK uses them. The Agents SDK has no conformance suite. Needs
SANDBAR_BASE_URL and SANDBAR_API_KEY.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from agents import Model, ModelResponse, RunConfig, Runner, Usage
from agents.run_config import SandboxRunConfig
from agents.sandbox import SandboxAgent
from agents.sandbox.entries import File
from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    InvalidManifestPathError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.manifest import Environment, Manifest
from agents.sandbox.session import SandboxSession
from agents.sandbox.snapshot import LocalSnapshotSpec
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from sandbar import AsyncSandbox, NotFoundError
from sandbar_openai_agents import SandbarSandboxClient, SandbarSandboxClientOptions, SandbarSandboxSession

README = Path(__file__).resolve().parent.parent / "README.md"
SMALL = {"memory_mb": 512, "rootfs_size_gb": 3}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[SandbarSandboxClient]:
    async with SandbarSandboxClient() as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(client: SandbarSandboxClient) -> AsyncIterator[SandboxSession]:
    manifest = Manifest(
        entries={"notes/a.txt": File(content=b"from the manifest\n")}, environment=Environment(value={"B": "manifest"})
    )
    options = SandbarSandboxClientOptions(**SMALL, env_vars={"A": "options", "B": "options"}, exposed_ports=(8000,))
    session = await client.create(manifest=manifest, options=options)
    try:
        await session.start()
        assert (await session.exec("useradd", "--create-home", "worker", shell=False)).ok()
        yield session
    finally:
        await client.delete(session)


async def test_a_command_runs_in_the_workspace_and_reports_its_own_exit_code(session: SandboxSession) -> None:
    result = await session.exec("cat notes/a.txt; echo $A $B; pwd; echo err >&2; exit 3")
    assert (result.exit_code, result.stderr) == (3, b"err\n")
    assert result.stdout == b"from the manifest\noptions manifest\n/workspace\n"
    assert (await session.exec("printf", "%s", "a b", shell=False)).stdout == b"a b"
    assert (await session.exec("kill -KILL $$")).exit_code == 137
    assert (await session.exec("head -c 300 /dev/urandom | tee raw")).stdout == (await session.read(Path("raw"))).read()
    assert (await session.exec("whoami", user="worker")).stdout == b"worker\n"


@pytest.mark.parametrize("timeout", [1, 0.5])
async def test_a_command_is_ended_after_its_timeout(session: SandboxSession, timeout: float) -> None:
    with pytest.raises(ExecTimeoutError):
        await session.exec("sleep 4711", timeout=timeout)
    while (await session.exec("pgrep", "-x", "sleep", shell=False)).ok():
        pass


async def test_a_cancelled_call_ends_the_command(session: SandboxSession) -> None:
    call = asyncio.create_task(session.exec("touch begun; sleep 4712"))
    while not (await session.exec("test", "-e", "begun", shell=False)).ok():
        assert not call.done()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    while (await session.exec("pgrep", "-x", "sleep", shell=False)).ok():
        pass


async def test_files_are_exact_and_stay_in_the_workspace(session: SandboxSession) -> None:
    content = bytes(range(256)) * 8192
    await session.write(Path("deep/all bytes"), io.BytesIO(content))
    assert (await session.read(Path("deep/all bytes"))).read() == content
    assert await session.read_bounded(Path("deep/all bytes"), max_bytes=300) == content[:300]
    assert sorted(Path(entry.path).name for entry in await session.ls("deep")) == ["all bytes"]
    await session.mkdir("a/b", parents=True)
    await session.rm("a", recursive=True)
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read(Path("a/b"))
    with pytest.raises(InvalidManifestPathError):
        await session.read(Path("/etc/passwd"))
    await session.exec("ln -s /etc/passwd link")
    with pytest.raises(InvalidManifestPathError):
        await session.read(Path("link"))


class OneCommandModel(Model):
    """A model that asks for one command, and then answers with the output of the command."""

    async def get_response(self, system_instructions: str | None, input: Any, *rest: Any, **more: Any) -> ModelResponse:
        done = [item for item in input if isinstance(item, dict) and item.get("type") == "function_call_output"]
        item: Any = ResponseFunctionToolCall(
            type="function_call",
            call_id="1",
            name="exec_command",
            arguments=json.dumps({"cmd": "cat notes/a.txt; exit 5"}),
        )
        if done:
            text = ResponseOutputText(type="output_text", text=str(done[0]["output"]), annotations=[])
            item = ResponseOutputMessage(id="2", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *rest: Any, **more: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


async def test_an_agent_runs_a_command_in_a_session(session: SandboxSession) -> None:
    agent = SandboxAgent(name="agent", model=OneCommandModel())
    config = RunConfig(sandbox=SandboxRunConfig(session=session), tracing_disabled=True)
    result = await Runner.run(agent, "what do the notes say?", run_config=config)
    assert "from the manifest" in result.final_output
    assert re.search(r"exit\w* (code|with).*5", result.final_output)


async def test_a_port_is_reached(session: SandboxSession) -> None:
    await session.exec("nohup python3 -m http.server 8000 >/dev/null 2>&1 &")
    while not (await session.exec("python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000))'")).ok():
        pass
    endpoint = await session.resolve_exposed_port(8000)
    assert endpoint.query
    assert not endpoint.tls
    assert endpoint.host.startswith("8000-")


async def test_a_workspace_with_an_unsafe_member_is_refused(session: SandboxSession) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("../outside"))
    archive.seek(0)
    with pytest.raises(WorkspaceArchiveWriteError):
        await session.hydrate_workspace(archive)


async def test_a_session_resumes_in_its_machine_and_then_in_a_new_one_with_its_workspace(
    client: SandbarSandboxClient, tmp_path: Path
) -> None:
    options = SandbarSandboxClientOptions(memory_mb=256, rootfs_size_gb=2, expires_in_sec=120, pause_on_exit=True)
    first = await client.create(snapshot=LocalSnapshotSpec(base_path=tmp_path), options=options)
    made: list[SandboxSession] = [first]
    try:
        async with first:
            await first.write(Path("kept.txt"), io.BytesIO(b"kept"))
            await first.exec("touch /root/same-machine")
        assert not await first.running()
        payload = json.loads(json.dumps(client.serialize_session_state(first.state)))
        second = await client.resume(client.deserialize_session_state(payload))
        made.append(second)
        async with second:
            assert (await second.exec("cat kept.txt")).stdout == b"kept"
            assert (await second.exec("test -e /root/same-machine")).ok()
        await client.delete(second)
        with pytest.raises(NotFoundError):
            await AsyncSandbox.connect(inner(first).state.machine_id, client=inner(first).sandbox.client)
        with pytest.raises(ExecTransportError):
            await first.exec("true")
        third = await client.resume(client.deserialize_session_state(payload))
        made.append(third)
        async with third:
            assert inner(third).state.machine_id != inner(first).state.machine_id
            assert (await third.exec("cat kept.txt")).stdout == b"kept"
    finally:
        for session in made:
            await client.delete(session)
    assert not await made[-1].running()


async def test_the_machine_expires(session: SandboxSession) -> None:
    assert (await inner(session).sandbox.info())["expires_at"] is not None


def test_the_example_of_the_readme_runs_as_written(tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "example.py").write_text(example)
    result = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, check=False, text=True)
    assert (result.returncode, result.stdout) == (0, "0 HELLO FROM THE MACHINE\n\n"), result.stderr


def inner(session: SandboxSession) -> SandbarSandboxSession:
    assert isinstance(session._inner, SandbarSandboxSession)
    return session._inner
