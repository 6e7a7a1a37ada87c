"""Which machine a sample gets."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from sandbar.models import MachineCreate


class SandbarSandboxConfig(BaseModel):
    """The settings of a sample's machine. Settings that are not given have the defaults of the service."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stack: str | None = None
    """The image, see GET /v1/images."""
    vcpus: int | None = None
    memory_mb: int | None = None
    rootfs_size_gb: int | None = None
    snapshot_id: str | None = None
    """Boot from this snapshot."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables for all commands."""
    user: str | None = None
    """The user that runs commands by default, and reads and writes files. Default: the user of the image."""
    working_dir: str | None = None
    """An absolute path. A missing directory is made. Default: the image's working directory, else the user's home."""
    expires_in_sec: int = 3600
    """The machine is destroyed this long after its creation at the latest, even if the evaluation is killed."""
    base_url: str | None = None
    """The address of the service. Default: as in sandbar-sdk. A config has no API key."""

    def __hash__(self) -> int:
        # Inspect uses configs as dictionary keys. The default hash would fail, because `env` is a dictionary.
        return hash(self.model_dump_json())

    def machine(self, task_name: str) -> MachineCreate:
        """The fields of the new machine."""
        names = ("stack", "vcpus", "memory_mb", "rootfs_size_gb", "snapshot_id")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        spec: MachineCreate = {
            "expires_in_sec": self.expires_in_sec,
            "metadata": {"created_by": "inspect", "inspect_task": task_name[:200]},
            **given,  # type: ignore[typeddict-item]
        }
        if self.env:
            spec["env"] = self.env
        return spec


def config_of(config: BaseModel | str | None) -> SandbarSandboxConfig:
    """Returns the config, or makes one from the name of a stack. Raises TypeError for another sandbox's config."""
    if config is None:
        return SandbarSandboxConfig()
    if isinstance(config, str):
        return SandbarSandboxConfig(stack=config)
    if isinstance(config, SandbarSandboxConfig):
        return config
    raise TypeError(f"expected a SandbarSandboxConfig or the name of a stack, not a {type(config).__name__}")
