"""Tests the package itself: its generated files, its public names and its version."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import sandbar

PROJECT = Path(__file__).resolve().parent.parent


def test_the_generated_files_are_those_of_their_sources() -> None:
    command = [sys.executable, str(PROJECT / "scripts" / "generate.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_public_name_exists_and_is_documented() -> None:
    for name in sandbar.__all__:
        value = getattr(sandbar, name)
        if inspect.isclass(value):
            assert value.__doc__, name


def test_the_blocking_client_has_no_trace_of_the_asynchronous_one() -> None:
    for file in (PROJECT / "src" / "sandbar" / "_sync").glob("*.py"):
        code = "\n".join(file.read_text().splitlines()[2:])
        assert not re.search(r"\b(Async\w+|await|async|asyncio|_async|aclose|_platform_async)\b", code), file


def test_every_operation_of_the_api_is_in_the_client() -> None:
    """Every new operation of the API must be added to the client, or to `left_out`."""
    left_out = {"/v1/billing/top-ups", "/v1/billing/card", "/v1/machines/{}/exec", "/v1/machines/{}/terminal"}
    text = (PROJECT.parent / "openapi" / "openapi.json").read_text()
    paths = {re.sub(r"\{\w+\}", "{}", path) for path in re.findall(r'^    "(/v1/[^"]+)": \{', text, re.MULTILINE)}
    assert len(paths) > 40
    source = "".join(file.read_text() for file in sorted((PROJECT / "src" / "sandbar" / "_async").glob("*.py")))
    for path in sorted(paths - left_out):
        if path.startswith("/v1/auth/"):
            continue
        last = [part for part in path.split("/") if part not in ("{}", "v1", "machines")]
        assert last == [] or re.search(rf"[/\"']{re.escape(last[-1])}", source), path


def test_the_version_is_in_one_place() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", sandbar.__version__)
    found = [file.name for file in PROJECT.rglob("*.py") if f'"{sandbar.__version__}"' in file.read_text()]
    assert found == ["_version.py"]
    assert (
        sandbar.__version__ not in (PROJECT / "pyproject.toml").read_text().split("[project]")[1].split("keywords")[0]
    )
