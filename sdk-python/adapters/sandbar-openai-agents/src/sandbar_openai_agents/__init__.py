"""Sandbar machines as sandboxes of the OpenAI Agents SDK."""

from ._client import SandbarSandboxClient
from ._options import SandbarSandboxClientOptions, SandbarSandboxSessionState
from ._session import SandbarSandboxSession

__all__ = [
    "SandbarSandboxClient",
    "SandbarSandboxClientOptions",
    "SandbarSandboxSession",
    "SandbarSandboxSessionState",
]
