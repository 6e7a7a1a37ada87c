"""Runs a command with a limit on the output that is kept in memory."""

from __future__ import annotations

import base64
import contextlib
import uuid
from typing import NamedTuple

from sandbar import JobLostError, Sandbox
from sandbar.models import Exec, ExecCreate
from sandbar.results import exec_result

#: How long the first request waits for the command, ms. Many proxies close a silent connection after 60 s.
_WAIT_MS = 30_000


class Ran(NamedTuple):
    """How a command ended."""

    output: bytes
    """Stdout and stderr, in the order written."""
    exit_code: int | None
    """None when the machine stopped or died while the command ran."""
    is_truncated: bool
    is_timed_out: bool


def run(sandbox: Sandbox, command: str, *, user: str | None, timeout_sec: int, max_bytes: int) -> Ran:
    """
    Runs a command with `/bin/sh -c` and waits for its end, even when its output is longer than `max_bytes`. A short
    command takes one request. An exception during the wait, such as KeyboardInterrupt, ends the command.
    """
    create: ExecCreate = {
        "command": command,
        "exec_id": str(uuid.uuid4()),
        "merge_output": True,
        "timeout_sec": timeout_sec,
    }
    if user is not None:
        create["user"] = user
    try:
        return _run(sandbox, create, max_bytes)
    except JobLostError:
        return Ran(b"the machine stopped or died while the command ran", None, is_truncated=True, is_timed_out=False)
    except BaseException:
        with contextlib.suppress(Exception):
            sandbox.client.execs.cancel(sandbox.id, create["exec_id"], timeout=5)
        raise


def _run(sandbox: Sandbox, create: ExecCreate, max_bytes: int) -> Ran:
    started = sandbox.client.execs.start(sandbox.id, wait_ms=_WAIT_MS, **create)
    page = started["output"]["stdout"] if "output" in started else None
    output = bytearray(base64.b64decode(page["data"]) if page else b"")
    job: Exec = started
    if page is None or not page["eof"]:
        handle = sandbox.job(started["id"])
        for chunk in handle.output("stdout", offset=len(output)):
            output += chunk.data
            if len(output) > max_bytes:
                break
        job = handle.wait()
    result = exec_result(job, bytes(output[:max_bytes]), b"")
    return Ran(result.stdout_bytes, result.exit_code, result.truncated or len(output) > max_bytes, result.timed_out)
