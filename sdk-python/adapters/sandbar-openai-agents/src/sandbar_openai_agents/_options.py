"""The options of a session's machine, and the state with which the machine is found again."""

from __future__ import annotations

from typing import Literal

from agents.sandbox.session import SandboxSessionState
from agents.sandbox.session.sandbox_client import BaseSandboxClientOptions
from pydantic import BaseModel, Field

from sandbar.models import MachineCreate


class MachineSettings(BaseModel):
    """The fields of a machine. Fields that are not given have the defaults of the service."""

    stack: str | None = None
    vcpus: int | None = None
    memory_mb: int | None = None
    rootfs_size_gb: int | None = None
    snapshot_id: str | None = None
    expires_in_sec: int = 3600

    def machine(self, session_id: str) -> MachineCreate:
        """The fields of the new machine."""
        return {
            "metadata": {"created_by": "openai-agents", "session_id": session_id},
            **self.model_dump(exclude_none=True),  # type: ignore[typeddict-item]
        }


class SandbarSandboxClientOptions(BaseSandboxClientOptions):
    """The options of `SandbarSandboxClient.create`. Options that are not given have the defaults of the service."""

    type: Literal["sandbar"] = "sandbar"
    stack: str | None = None
    """The image, see GET /v1/images. It needs a shell and tar."""
    vcpus: int | None = None
    memory_mb: int | None = None
    rootfs_size_gb: int | None = None
    snapshot_id: str | None = None
    """Boot from this snapshot."""
    env_vars: dict[str, str] = Field(default_factory=dict)
    """Environment variables for all commands. The manifest can override them."""
    expires_in_sec: int = 3600
    """The machine is destroyed this long after its creation at the latest, even if the program is killed."""
    pause_on_exit: bool = False
    """At the end of the session, stop the machine for a later `resume`, and do not destroy it. It still expires."""
    exposed_ports: tuple[int, ...] = ()
    exposed_port_url_ttl_s: int = 3600


class SandbarSandboxSessionState(SandboxSessionState):
    """The state that `resume` needs. It does not contain the API key."""

    type: Literal["sandbar"] = "sandbar"
    machine_id: str
    machine: MachineSettings
    base_env_vars: dict[str, str] = Field(default_factory=dict)
    pause_on_exit: bool = False
    exposed_port_url_ttl_s: int = 3600
