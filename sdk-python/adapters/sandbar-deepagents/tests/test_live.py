"""
Tests the backend with a real machine: with the conformance suite of deepagents, and for what the suite leaves out. The
suite runs as a user other than root, because root may read every file. Needs SANDBAR_BASE_URL and SANDBAR_API_KEY.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deepagents.backends.protocol import SandboxBackendProtocol
from langchain_tests.integration_tests import SandboxIntegrationTests

from sandbar import ConflictError, NotFoundError, Sandbox
from sandbar_deepagents import SandbarSandbox

README = Path(__file__).resolve().parent.parent / "README.md"


@pytest.fixture(scope="module")
def backend() -> Iterator[SandbarSandbox]:
    with SandbarSandbox.create(memory_mb=512, rootfs_size_gb=3, metadata={"run": "deepagents"}) as backend:
        assert backend.execute("useradd --create-home worker").exit_code == 0
        yield backend


#: These tests of the suite fail, because the suite is older than deepagents, whose own code they call. Since version
#: 0.7 of deepagents, `glob` returns absolute paths and `write` replaces a file.
OF_OLDER_VERSIONS = [
    "test_glob",
    "test_glob_basic_pattern",
    "test_glob_hidden_files_explicitly",
    "test_glob_with_character_class",
    "test_glob_with_directories",
    "test_glob_with_question_mark",
    "test_write_existing_file_fails",
]


class TestConformance(SandboxIntegrationTests):
    @property
    def sandbox_root_dir(self) -> str:
        return "/home/worker/ops"

    @pytest.fixture(scope="class")
    def sandbox(self, backend: SandbarSandbox) -> SandboxBackendProtocol:
        return SandbarSandbox(backend.sandbox, user="worker")

    @pytest.fixture(autouse=True)
    def expect_failures(self, request: pytest.FixtureRequest) -> None:
        if request.node.name in OF_OLDER_VERSIONS:
            request.node.add_marker(pytest.mark.xfail(strict=True, reason="the suite is older than deepagents"))


def test_a_command_reports_its_own_exit_code(backend: SandbarSandbox) -> None:
    assert backend.execute("echo out; echo err >&2; exit 3").output == "out\nerr\n"
    assert backend.execute("exit 3").exit_code == 3
    assert backend.execute("kill -KILL $$").exit_code == 137
    late = backend.execute("echo begun; sleep 100", timeout=1)
    assert (late.exit_code, late.output) == (124, "begun\n\nThe command was ended after 1 s.")
    assert SandbarSandbox(backend.sandbox, user="worker").execute("whoami").output == "worker\n"


def test_output_over_the_limit_is_dropped_and_reported(backend: SandbarSandbox) -> None:
    small = SandbarSandbox(backend.sandbox, max_output_bytes=100_000)
    long = small.execute("head -c 300000 /dev/zero | tr '\\0' x; exit 7")
    assert (len(long.output), long.exit_code, long.truncated) == (100_000, 7, True)
    exact = small.execute("head -c 100000 /dev/zero | tr '\\0' x")
    assert (len(exact.output), exact.exit_code, exact.truncated) == (100_000, 0, False)


@pytest.mark.parametrize("user", [None, "worker"])
def test_files_are_exact_and_errors_have_the_codes_of_upstream(backend: SandbarSandbox, user: str | None) -> None:
    as_user = SandbarSandbox(backend.sandbox, user=user)
    content = bytes(range(256)) * 8192
    path = f"/tmp/of-{user}/new/all bytes"
    up = as_user.upload_files([(path, content), ("/tmp", b""), ("relative", b"")])
    assert [answer.error for answer in up] == [None, "is_directory", "invalid_path"]
    down = as_user.download_files([path, "/nope", "/etc", "etc"])
    assert [answer.error for answer in down] == [None, "file_not_found", "is_directory", "invalid_path"]
    assert down[0].content == content
    shadow = as_user.download_files(["/etc/shadow"])[0]
    assert shadow.error == (None if user is None else "permission_denied")
    assert as_user.upload_files([("/etc/of-user", b"")])[0].error == (None if user is None else "permission_denied")


def test_the_machine_expires_and_close_destroys_it(backend: SandbarSandbox) -> None:
    assert backend.sandbox.info()["expires_at"] is not None
    other = SandbarSandbox.create(memory_mb=256, rootfs_size_gb=2, expires_in_sec=60)
    other.close()
    with pytest.raises(NotFoundError):
        Sandbox.connect(other.id, client=backend.sandbox.client)
    gone = SandbarSandbox(Sandbox(backend.sandbox.client, other.id))
    assert "The machine is destroyed" in str(gone.download_files(["/etc/hosts"])[0].error)
    with pytest.raises(ConflictError):
        gone.execute("true")


def test_the_example_of_the_readme_runs_as_written(tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "example.py").write_text(example)
    result = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, check=False, text=True)
    assert (result.returncode, result.stdout) == (0, "0 HELLO FROM THE MACHINE\n\n"), result.stderr
