// Sandbar as a sandbox provider of the AI SDK's harness: `new HarnessAgent({ sandbox: createSandbarSandbox(), … })`.
import { HarnessSandboxAuthenticationError, type HarnessV1SandboxProvider } from '@ai-sdk/harness';
import {
  Client,
  ConfigurationError,
  ForbiddenError,
  type MachineOptions,
  NotFoundError,
  Sandbox,
  UnauthenticatedError,
  type WithClient,
} from '@sandbar/sdk';
import { NetworkSession, PROVIDER_ID } from './network-session.ts';
import type { SessionOptions } from './session.ts';
import { findWorkingDirectory } from './working-directory.ts';

/** The metadata of a machine has the id of its session under this key, so that the session can be resumed. */
const SESSION_KEY = 'ai_sdk_session';
const DEFAULT_EXPIRY_SEC = 1800;

export type SandbarSandboxSettings = MachineOptions &
  WithClient &
  SessionOptions & {
    /** The ports that sessions expose. Default: none. */
    ports?: readonly number[] | undefined;
    /** Use this machine for every session. `stop` and `destroy` of a session then do nothing. */
    sandbox?: Sandbox | undefined;
  };

type CreateOptions = NonNullable<Parameters<HarnessV1SandboxProvider['createSession']>[0]>;

/** Creates a provider. It sends no request and reads no settings before its first session. */
export function createSandbarSandbox(settings: SandbarSandboxSettings = {}): HarnessV1SandboxProvider {
  return {
    specificationVersion: 'harness-sandbox-v1',
    providerId: PROVIDER_ID,
    createSession: (options = {}) => explainAuthentication(() => createSession(settings, options)),
    resumeSession: (options) => explainAuthentication(() => resumeSession(settings, options)),
  };
}

/**
 * Creates a machine for the session, unless the settings have one. Sessions with the same `identity` do not share a
 * machine, so `onFirstCreate` runs in every new machine.
 */
async function createSession(settings: SandbarSandboxSettings, options: CreateOptions): Promise<NetworkSession> {
  const { abortSignal, sessionId, onFirstCreate } = options;
  abortSignal?.throwIfAborted();
  if (settings.sandbox) return sessionOf(settings.sandbox, settings, false);
  const metadata = { ...settings.metadata, ...(sessionId === undefined ? {} : { [SESSION_KEY]: sessionId }) };
  // Do not pass the signal to the create: to destroy the machine, its id must be known.
  const { expiresInSec = DEFAULT_EXPIRY_SEC } = settings;
  const sandbox = await Sandbox.create({ ...settings, expiresInSec, metadata });
  try {
    abortSignal?.throwIfAborted();
    const session = await sessionOf(sandbox, settings, true);
    await onFirstCreate?.(session.restricted(), abortSignal ? { abortSignal } : {});
    return session;
  } catch (error) {
    await sandbox.destroy().catch(() => undefined);
    throw error;
  }
}

/** Finds the machine of an earlier session, and starts it if it is stopped. Its expiry counts from now again. */
async function resumeSession(
  settings: SandbarSandboxSettings,
  { sessionId, abortSignal: signal }: { sessionId: string; abortSignal?: AbortSignal },
): Promise<NetworkSession> {
  if (settings.sandbox) return sessionOf(settings.sandbox, settings, false);
  const client = settings.client ?? new Client(settings);
  const [machine] = await client.machines.list({ metadata: { [SESSION_KEY]: sessionId } }, { signal });
  if (machine === undefined) {
    const detail = `There is no machine of the session ${sessionId}.`;
    throw new NotFoundError({ status: 404, code: 'not_found', detail, requestId: null, retryAfterSec: null });
  }
  const sandbox = client.sandbox(machine.id);
  const { expiresInSec = DEFAULT_EXPIRY_SEC } = settings;
  await sandbox.update({ expiresInSec, signal });
  if (machine.state === 'stopped') await sandbox.resume({ signal });
  return sessionOf(sandbox, settings, true);
}

async function sessionOf(sandbox: Sandbox, settings: SandbarSandboxSettings, isOwner: boolean) {
  const directory = await findWorkingDirectory(sandbox, settings.workingDirectory);
  return new NetworkSession(sandbox, directory, { ...settings, isOwner });
}

/** The harness has its own error for missing or refused credentials. Turns the SDK's errors into it. */
async function explainAuthentication<T>(operation: () => Promise<T>): Promise<T> {
  try {
    return await operation();
  } catch (error) {
    const isRefused =
      error instanceof UnauthenticatedError || error instanceof ForbiddenError || error instanceof ConfigurationError;
    if (!isRefused) throw error;
    const message = `Sandbar refused the credentials: ${error.message}`;
    throw new HarnessSandboxAuthenticationError({ message, sandboxProviderId: PROVIDER_ID, cause: error });
  }
}
