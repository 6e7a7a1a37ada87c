"""Runs a command in a machine, with the limits of Inspect: input and arguments of any length, output of a few MiB."""

from __future__ import annotations

import base64
import contextlib
import json
import shlex
import uuid
from collections.abc import AsyncGenerator, Sequence

import anyio
from inspect_ai.util import OutputLimitExceededError, SandboxEnvironmentLimits

from sandbar import AsyncSandbox, ExecResult
from sandbar.models import Exec, ExecCreate, ExecStarted
from sandbar.results import OutputStream, exec_result

#: How long the first request waits for the command, ms. After that, the output is read while the command runs, so that
#: too much output ends the command early.
_WAIT_MS = 2000
#: The most bytes of arguments (as JSON) and of input in the start request. Its whole body may have 1 MiB.
_ARGUMENT_BYTES = 256 * 1024
_INPUT_BYTES = 256 * 1024
#: How many bytes of the output an OutputLimitExceededError contains.
_SHOWN_BYTES = 16 * 1024


async def run(
    sandbox: AsyncSandbox, argv: Sequence[str], stdin: bytes | None, create: ExecCreate, limit: int, uid: str
) -> ExecResult:
    """
    Runs a command and waits for its end. A short command takes one request. If the caller is cancelled, ends the
    command. If a stream has more than `limit` bytes, ends the command and raises OutputLimitExceededError. `uid`: the
    default user of commands.
    """
    id = str(uuid.uuid4())
    create["exec_id"] = id
    async with _prepared(sandbox, argv, stdin, create.get("user") or uid) as (prepared, sent):
        create["argv"] = prepared
        if sent is not None:
            create["stdin"] = base64.b64encode(sent).decode()
        try:
            started = await sandbox.client.execs.start(sandbox.id, wait_ms=_WAIT_MS, **create)
            stdout = await _output(sandbox, started, "stdout", limit)
            stderr = await _output(sandbox, started, "stderr", limit)
            job: Exec = started
            if job["status"] == "running":
                job = await sandbox.client.execs.wait(sandbox.id, id)
        except (anyio.get_cancelled_exc_class(), OutputLimitExceededError):
            with anyio.CancelScope(shield=True), contextlib.suppress(Exception):
                await sandbox.client.execs.cancel(sandbox.id, id, timeout=10)
            raise
    result = exec_result(job, stdout, stderr)
    if result.truncated:
        raise _over_limit(stdout)
    return result


async def _output(sandbox: AsyncSandbox, started: ExecStarted, stream: OutputStream, limit: int) -> bytes:
    """Returns all bytes of a stream. `started` may contain the first page already."""
    page = started["output"][stream] if "output" in started else None
    output = bytearray(base64.b64decode(page["data"]) if page else b"")
    if page is None or not page["eof"]:
        async for chunk in sandbox.job(started["id"]).output(stream, offset=len(output)):
            output += chunk.data
            if len(output) > limit:
                break
    if len(output) > limit:
        raise _over_limit(bytes(output))
    return bytes(output)


def _over_limit(output: bytes) -> OutputLimitExceededError:
    shown = output[:_SHOWN_BYTES].decode("utf-8", "replace")
    return OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, shown)


@contextlib.asynccontextmanager
async def _prepared(
    sandbox: AsyncSandbox, argv: Sequence[str], stdin: bytes | None, owner: str
) -> AsyncGenerator[tuple[list[str], bytes | None], None]:
    """
    Yields arguments and input that fit into a request. Arguments or input that are too long are put into files of the
    machine, which are removed at the end. Only `owner`, the user that runs the command, may read these files.
    """
    prepared, sent = [*argv], stdin
    files: list[str] = []

    async def put(content: bytes) -> str:
        path = f"/tmp/.sandbar-inspect-{uuid.uuid4().hex}"
        files.append(path)
        await sandbox.files.write(path, content, mode=0o600, user=owner)
        return path

    try:
        if len(json.dumps(prepared)) > _ARGUMENT_BYTES:
            prepared = ["/bin/sh", await put(f"exec {shlex.join(argv)}\n".encode())]
        if stdin is not None and len(stdin) > _INPUT_BYTES:
            prepared = ["/bin/sh", "-c", 'exec "$@" < "$0"', await put(stdin), *prepared]
            sent = None
        yield prepared, sent
    finally:
        with anyio.CancelScope(shield=True):
            for path in files:
                with contextlib.suppress(Exception):
                    await sandbox.files.remove(path, timeout=10)
