// Sandbar as a provider of ComputeSDK: `compute({ provider: sandbar() }).sandbox.create()`.
import { defineProvider, type Provider } from '@computesdk/provider';
import { Client, type ClientOptions, NotFoundError, Sandbox } from '@sandbar/sdk';
import type { CreateSandboxOptions, SandboxInfo, Snapshot } from 'computesdk';
import { filesystem } from './filesystem.ts';
import { runCommand, streamCommand } from './run-command.ts';

export type SandbarConfig = ClientOptions & {
  /** The client to use. Default: a new one with the other options, see `ClientOptions` of `@sandbar/sdk`. */
  client?: Client | undefined;
  /** Seconds until a machine destroys itself (10 to 31,536,000). `timeout` of a create overrides it. Default: 1800. */
  expiresInSec?: number | undefined;
  /** The image of machines that are created without an image. Default: the default of the service. */
  stack?: string | undefined;
  vcpus?: number | undefined;
  /** MiB. */
  memoryMb?: number | undefined;
  /** GiB. */
  rootfsSizeGb?: number | undefined;
  /**
   * If true, `getUrl` makes the port public. By default the port stays private, and the URL has a token that is valid for
   * an hour; a browser that opens the URL keeps the token as a cookie.
   */
  publicPorts?: boolean | undefined;
};

const PROVIDER = 'sandbar';
const DEFAULT_EXPIRY_SEC = 1800;
/** The shortest expiry that the service accepts. */
const MIN_EXPIRY_SEC = 10;

type Settings = SandbarConfig & { client: Client };
/** What each method of the provider gets: the handle of the machine, and the settings of the provider. */
export type SandbarInstance = { sandbox: Sandbox; settings: Settings };

const define = defineProvider<SandbarInstance, Settings, never, Snapshot>({
  name: PROVIDER,
  methods: {
    sandbox: {
      // ComputeSDK itself destroys the machine if the caller's signal is aborted before the create has resolved.
      async create(settings, options = {}) {
        const sandbox = await Sandbox.create({ client: settings.client, ...machineOf(settings, options) });
        return handle(settings, sandbox);
      },
      async getById(settings, id) {
        try {
          return handle(settings, await Sandbox.connect(id, { client: settings.client }));
        } catch (error) {
          if (error instanceof NotFoundError) return null;
          throw error;
        }
      },
      async list(settings) {
        const sandboxes = await Sandbox.list({ client: settings.client });
        return sandboxes.map((sandbox) => handle(settings, sandbox));
      },
      destroy: ({ client }, id) => client.sandbox(id).destroy(),
      runCommand: ({ sandbox }, command, options) => runCommand(sandbox, command, options),
      streamCommand: ({ sandbox }, command, options) => streamCommand(sandbox, command, options),
      getInfo: ({ sandbox }) => infoOf(sandbox),
      getUrl: ({ sandbox, settings }, { port, protocol }) => urlOf(sandbox, settings, port, protocol),
      filesystem,
    },
    snapshot: {
      // Drop the metadata that ComputeSDK passes, because a snapshot of Sandbar has only a name.
      create: async ({ client }, machineId, { name } = {}) =>
        snapshotOf(await client.snapshots.create(machineId, name === undefined ? {} : { name })),
      async list({ client }, { sandboxId, limit } = {}) {
        const snapshots = await client.snapshots.list(sandboxId === undefined ? {} : { machineId: sandboxId });
        return snapshots.slice(0, limit).map(snapshotOf);
      },
      delete: ({ client }, id) => client.snapshots.delete(id),
    },
  },
});

/**
 * Creates the provider. Throws ConfigurationError when the address or the key of the service is missing. The calls of
 * the provider throw the errors of `@sandbar/sdk` unchanged.
 */
export function sandbar(config: SandbarConfig = {}): Provider<SandbarInstance, never, Snapshot> {
  return define({ ...config, client: config.client ?? new Client(config) });
}

function handle(settings: Settings, sandbox: Sandbox): { sandbox: SandbarInstance; sandboxId: string } {
  return { sandbox: { sandbox, settings }, sandboxId: sandbox.id };
}

/**
 * `timeout` is in ms. The size comes from `vcpus`, `memoryMb` (MiB) and `rootfsSizeGb` (GiB); other names for sizes are
 * ignored.
 */
function machineOf(settings: Settings, options: CreateSandboxOptions) {
  const { name, envs, metadata, snapshotId, timeout } = options;
  return {
    name,
    metadata,
    env: envs,
    snapshotId,
    // A machine from a snapshot has the snapshot's image, so the defaults of the provider are left out.
    stack: options.image ?? options.templateId ?? options.runtime ?? (snapshotId ? undefined : settings.stack),
    vcpus: options.vcpus ?? settings.vcpus,
    memoryMb: options.memoryMb ?? settings.memoryMb,
    rootfsSizeGb: (options.rootfsSizeGb as number | undefined) ?? (snapshotId ? undefined : settings.rootfsSizeGb),
    expiresInSec:
      timeout === undefined
        ? (settings.expiresInSec ?? DEFAULT_EXPIRY_SEC)
        : Math.max(MIN_EXPIRY_SEC, Math.ceil(timeout / 1000)),
  };
}

async function infoOf(sandbox: Sandbox): Promise<SandboxInfo> {
  const { id, state, created_at, expires_at, metadata } = await sandbox.info();
  const createdAt = new Date(created_at);
  const status = state === 'error' ? 'error' : state === 'running' ? 'running' : 'stopped';
  // ComputeSDK has no value for a machine that never expires, so report 0.
  const timeout = expires_at === null ? 0 : Date.parse(expires_at) - createdAt.getTime();
  return {
    id,
    provider: PROVIDER,
    status,
    createdAt,
    timeout,
    metadata,
  };
}

async function urlOf(sandbox: Sandbox, { publicPorts }: Settings, port: number, protocol?: string): Promise<string> {
  const text = publicPorts ? (await sandbox.ports.setAccess(port, 'public')).url : await sandbox.ports.url(port);
  if (protocol === undefined) return text;
  // The service decides whether connections are encrypted, so a request for `http` may get an `https` URL, and `ws` may
  // become `wss`.
  const url = new URL(text);
  const isSecure = url.protocol === 'https:';
  if (protocol.startsWith('ws')) url.protocol = isSecure ? 'wss:' : 'ws:';
  return url.toString();
}

function snapshotOf({ id, machine_id, name, kind, size_gb, created_at }: SandbarSnapshot): Snapshot {
  return {
    id,
    provider: PROVIDER,
    createdAt: new Date(created_at),
    metadata: { name, kind, sizeGb: size_gb, sandboxId: machine_id },
  };
}

type SandbarSnapshot = Awaited<ReturnType<Client['snapshots']['create']>>;
