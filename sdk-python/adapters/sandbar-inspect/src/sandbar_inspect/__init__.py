"""Sandbar machines as sandbox environments of Inspect AI, under the name `sandbar`."""

from ._config import SandbarSandboxConfig
from ._environment import SandbarSandboxEnvironment

__all__ = ["SandbarSandboxConfig", "SandbarSandboxEnvironment"]
