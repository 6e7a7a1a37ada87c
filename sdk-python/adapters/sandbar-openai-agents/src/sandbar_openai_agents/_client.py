"""The client: creates, resumes and deletes sessions."""

from __future__ import annotations

import uuid
from types import TracebackType

from agents.sandbox._mount_security import redact_mount_error_data
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.dependencies import Dependencies
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.sandbox_client import BaseSandboxClient
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from typing_extensions import override

from sandbar import AsyncClient, AsyncSandbox, NotFoundError

from ._options import MachineSettings, SandbarSandboxClientOptions, SandbarSandboxSessionState
from ._session import SandbarSandboxSession


class SandbarSandboxClient(BaseSandboxClient[SandbarSandboxClientOptions]):
    """
    Manages sessions in machines of a Sandbar service. Its connections are closed by `aclose` or at the end of an
    `async with` block.
    """

    backend_id = "sandbar"

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        instrumentation: Instrumentation | None = None,
        dependencies: Dependencies | None = None,
    ) -> None:
        """Without `base_url` or `api_key`, finds the address or the key in the same way as sandbar-sdk."""
        self._client = AsyncClient(base_url=base_url, api_key=api_key, user_agent="sandbar-openai-agents/0.1.0")
        self._instrumentation = instrumentation or Instrumentation()
        self._dependencies = dependencies

    @redact_mount_error_data
    @override
    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: SandbarSandboxClientOptions,
    ) -> SandboxSession:
        """Makes a session with a new machine. If the caller does not delete the session, the machine expires."""
        used = self._validate_manifest_for_create(manifest or Manifest())
        session_id = uuid.uuid4()
        settings = MachineSettings(**{name: getattr(options, name) for name in MachineSettings.model_fields})
        sandbox = await self._machine(settings, session_id)
        state = SandbarSandboxSessionState(
            session_id=session_id,
            manifest=used,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            machine_id=sandbox.id,
            machine=settings,
            base_env_vars=options.env_vars,
            pause_on_exit=options.pause_on_exit,
            exposed_ports=options.exposed_ports,
            exposed_port_url_ttl_s=options.exposed_port_url_ttl_s,
        )
        return self._wrap_session(
            SandbarSandboxSession(state=state, sandbox=sandbox), instrumentation=self._instrumentation
        )

    @override
    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Destroys the machine, even if the session has paused it. Raises the error of the service if that fails."""
        inner = session._inner
        if not isinstance(inner, SandbarSandboxSession):
            raise TypeError("SandbarSandboxClient.delete expects a SandbarSandboxSession")
        await inner.sandbox.destroy()
        return session

    @redact_mount_error_data
    @override
    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """
        Returns the session of this state. Starts its machine if that is stopped. If the machine is destroyed, the
        session gets a new machine with the workspace from the snapshot of the state.
        """
        if not isinstance(state, SandbarSandboxSessionState):
            raise TypeError("SandbarSandboxClient.resume expects a SandbarSandboxSessionState")
        state.assert_path_grants_rebound()
        try:
            sandbox = await AsyncSandbox.connect(state.machine_id, client=self._client)
            if (await sandbox.info())["state"] != "running":
                await sandbox.resume()
            is_preserved = True
        except NotFoundError:
            sandbox = await self._machine(state.machine, state.session_id)
            state.machine_id = sandbox.id
            state.workspace_root_ready = False
            is_preserved = False
        inner = SandbarSandboxSession(state=state, sandbox=sandbox)
        inner._set_start_state_preserved(is_preserved, system=is_preserved)
        return self._wrap_session(inner, instrumentation=self._instrumentation)

    @override
    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, SandbarSandboxSessionState)

    async def aclose(self) -> None:
        """Closes the connections. Machines of sessions that were not deleted stay until they expire."""
        await self._client.aclose()

    async def __aenter__(self) -> SandbarSandboxClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _machine(self, settings: MachineSettings, session_id: uuid.UUID) -> AsyncSandbox:
        return await AsyncSandbox.create(client=self._client, **settings.machine(str(session_id)))
