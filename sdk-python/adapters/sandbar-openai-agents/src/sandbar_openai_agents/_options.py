"""Which machine a session gets, and what finds it again."""

from __future__ import annotations

from typing import Literal

from agents.sandbox.session import SandboxSessionState
from agents.sandbox.session.sandbox_client import BaseSandboxClientOptions
from pydantic import BaseModel, Field

from sandbar.models import MachineCreate


class MachineSettings(BaseModel):
    """The fields of a machine. What is not given is the default of the service."""

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
    """The options of `SandbarSandboxClient.create`. What is not given is the default of the service."""

    type: Literal["sandbar"] = "sandbar"
    stack: str | None = None
    """The image, see GET /v1/images. It needs a shell and tar."""
    vcpus: int | None = None
    memory_mb: int | None = None
    rootfs_size_gb: int | None = None
    snapshot_id: str | None = None
    """Boot from this snapshot."""
    env_vars: dict[str, str] = Field(default_factory=dict)
    """The environment of all commands. The environment of the manifest wins."""
    expires_in_sec: int = 3600
    """The machine is destroyed this long after its creation at the latest, also when the program was killed."""
    pause_on_exit: bool = False
    """Stop the machine at the end of the session, for `resume`, in place of destroying it. It still expires."""
    exposed_ports: tuple[int, ...] = ()
    exposed_port_url_ttl_s: int = 3600


class SandbarSandboxSessionState(SandboxSessionState):
    """What `resume` needs. It has no key of the service."""

    type: Literal["sandbar"] = "sandbar"
    machine_id: str
    machine: MachineSettings
    base_env_vars: dict[str, str] = Field(default_factory=dict)
    pause_on_exit: bool = False
    exposed_port_url_ttl_s: int = 3600
