"""
Tests the environment with a real machine: with the conformance suite of Inspect, as root and as another user, and for
what the suite leaves out. Needs SANDBAR_BASE_URL and SANDBAR_API_KEY.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from inspect_ai.util import OutputLimitExceededError, SandboxUnavailableError
from inspect_ai.util._sandbox.limits import override_sandbox_output_limit
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from sandbar import AsyncSandbox, NotFoundError
from sandbar_inspect import SandbarSandboxConfig, SandbarSandboxEnvironment

README = Path(__file__).resolve().parent.parent / "README.md"
_FAIL_AS_ROOT = [
    "test_read_file_not_allowed",
    "test_write_text_file_without_permissions",
    "test_write_binary_file_without_permissions",
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def as_root() -> AsyncIterator[SandbarSandboxEnvironment]:
    config = SandbarSandboxConfig(memory_mb=768, rootfs_size_gb=3, env={"FROM_CONFIG": "1"}, working_dir="/srv/work")
    [environment] = (await SandbarSandboxEnvironment.sample_init("live", config, {})).values()
    made = environment.as_type(SandbarSandboxEnvironment)
    try:
        assert (await made.exec(["useradd", "--create-home", "worker"])).success
        yield made
    finally:
        await SandbarSandboxEnvironment.sample_cleanup("live", config, {"default": made}, False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def as_worker(as_root: SandbarSandboxEnvironment) -> SandbarSandboxEnvironment:
    config = SandbarSandboxConfig(user="worker")
    uid = (await as_root.exec(["id", "-u", "worker"])).stdout.strip()
    return SandbarSandboxEnvironment(as_root.sandbox, config, "/home/worker", uid)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs tests of files for both users, because files of root and of others are accessed in different ways."""
    if "sandbox_env" in metafunc.fixturenames:
        users = ["root", "worker"] if "file" in metafunc.function.__name__ else ["root"]
        metafunc.parametrize("sandbox_env", users, indirect=True)


@pytest.fixture
def sandbox_env(
    request: pytest.FixtureRequest, as_root: SandbarSandboxEnvironment, as_worker: SandbarSandboxEnvironment
) -> SandbarSandboxEnvironment:
    if request.param == "root" and request.node.originalname in _FAIL_AS_ROOT:
        request.node.add_marker(pytest.mark.xfail(strict=True, reason="root may read and write every file"))
    return as_root if request.param == "root" else as_worker


def test_inspect_finds_the_package_by_its_name() -> None:
    assert registry_find_sandboxenv("sandbar") is SandbarSandboxEnvironment


async def test_a_command_has_the_environment_of_the_config(as_root: SandbarSandboxEnvironment) -> None:
    result = await as_root.exec(["sh", "-c", "echo $FROM_CONFIG$A; pwd; exit 3"], env={"A": "2"})
    assert (result.success, result.returncode, result.stdout) == (False, 3, "12\n/srv/work\n")
    assert (await as_root.exec(["sh", "-c", "kill -KILL $$"])).returncode == 137
    missing = await as_root.exec(["true"], cwd="/nope")
    assert (missing.success, "/nope" in missing.stderr) == (False, True)


async def test_output_over_the_limit_ends_the_command(as_root: SandbarSandboxEnvironment) -> None:
    with override_sandbox_output_limit(100_000), pytest.raises(OutputLimitExceededError) as caught:
        await as_root.exec(["yes", "endless"])
    assert caught.value.truncated_output is not None
    assert caught.value.truncated_output.startswith("endless\n")
    assert (await as_root.exec(["pgrep", "-x", "yes"])).returncode == 1


async def test_a_cancelled_call_ends_the_command(as_root: SandbarSandboxEnvironment) -> None:
    call = asyncio.create_task(as_root.exec(["sh", "-c", "touch /tmp/begun; sleep 4711"]))
    while not (await as_root.exec(["test", "-e", "/tmp/begun"])).success:
        assert not call.done()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    while (await as_root.exec(["pgrep", "-f", "sleep 4711"])).success:
        pass


async def test_no_file_is_left_of_long_input(as_worker: SandbarSandboxEnvironment) -> None:
    result = await as_worker.exec(["wc", "-c", *["-c"] * 60_000], input=b"\0" * 1_000_000)
    assert (result.stdout, result.stderr) == ("1000000\n", "")
    assert (await as_worker.exec(["sh", "-c", "ls -a /tmp | grep sandbar"])).stdout == ""


async def test_cleanup_destroys_the_machine_and_later_calls_say_so(as_root: SandbarSandboxEnvironment) -> None:
    info = await as_root.sandbox.info()
    assert info["expires_at"] is not None
    config = SandbarSandboxConfig(memory_mb=256, rootfs_size_gb=2, expires_in_sec=60)
    other = await SandbarSandboxEnvironment.start("cleanup", config)
    await SandbarSandboxEnvironment.sample_cleanup("cleanup", config, {"default": other}, True)
    client = as_root.sandbox.client
    with pytest.raises(NotFoundError):
        await AsyncSandbox.connect(other.sandbox.id, client=client)
    gone = SandbarSandboxEnvironment(AsyncSandbox(client, other.sandbox.id), config, "/", "0")
    for call in (gone.exec(["true"]), gone.read_file("/etc/hosts"), gone.write_file("/a", "")):
        with pytest.raises(SandboxUnavailableError):
            await call


def test_the_example_of_the_readme_runs_as_written(tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "example.py").write_text(example)
    command = [sys.executable, "example.py"]
    env = {**os.environ, "INSPECT_DISPLAY": "none"}
    result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=False, text=True)
    assert (result.returncode, result.stdout) == (0, "success 1.0\n"), result.stderr
