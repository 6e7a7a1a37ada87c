"""Tests commands with long input, which is put into files of the machine. Needs no service."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbar import AsyncSandbox
from sandbar_inspect import SandbarSandboxConfig, SandbarSandboxEnvironment

LONG = b"x" * 300_000


class FakeMachine:
    """Records the owners of the files that are written. Every command ends at once."""

    def __init__(self) -> None:
        self.id = "m"
        self.owners: list[str | None] = []
        self.client = SimpleNamespace(execs=self)
        self.files = self

    async def write(self, path: str, content: bytes, *, mode: int, user: str | None) -> None:
        assert (content, mode) == (LONG, 0o600)
        self.owners.append(user)

    async def remove(self, path: str, *, timeout: float) -> None:
        pass

    async def start(self, machine_id: str, *, wait_ms: int, **command: Any) -> dict[str, Any]:
        page = {"data": base64.b64encode(b"").decode(), "eof": True}
        job = {"id": "j", "machine_id": machine_id, "status": "exited", "exit_code": 0, "signal": None}
        times = {"stdout_bytes": 0, "stderr_bytes": 0, "duration_ms": 1, "timed_out": False, "truncated": False}
        return {**job, **times, "output": {"stdout": page, "stderr": page}}


@pytest.mark.parametrize(("user", "owner"), [(None, "1000"), ("worker", "worker")])
async def test_the_user_of_the_command_owns_the_files_of_its_long_input(user: str | None, owner: str) -> None:
    machine = FakeMachine()
    config = SandbarSandboxConfig(user=user)
    environment = SandbarSandboxEnvironment(cast("AsyncSandbox", machine), config, "/", "1000")
    assert (await environment.exec(["cat"], input=LONG)).success
    await environment.write_file("/tmp/a", LONG)
    await environment.exec(["cat"], input=LONG, user="other")
    assert machine.owners == [owner, owner, "other"]
