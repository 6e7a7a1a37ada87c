"""Sandbar machines as sandbox backends of LangChain deepagents."""

from ._backend import SandbarSandbox

__all__ = ["SandbarSandbox"]
