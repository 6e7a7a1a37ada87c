// A machine for `experimental_sandbox` of the AI SDK: `await using sandbox = await SandbarSession.create()`.
import { Sandbox, type SandboxOptions, type WithClient } from '@sandbar/sdk';
import { MachineSession, type SessionOptions } from './session.ts';
import { findWorkingDirectory } from './working-directory.ts';

export type { SessionOptions };

/** The service destroys machines after this time, so that a program that is killed leaves no machine behind. */
const DEFAULT_EXPIRY_SEC = 1800;

export type SandbarSessionOptions = SandboxOptions & SessionOptions;

/** A session of one machine, which it can also destroy. It throws the errors of `@sandbar/sdk` unchanged. */
export class SandbarSession extends MachineSession implements AsyncDisposable {
  /** The machine. Use it for ports, snapshots and the expiry, for which the AI SDK has no calls. */
  readonly sandbox: Sandbox;

  private constructor(sandbox: Sandbox, workingDirectory: string, options: SessionOptions) {
    super(sandbox, workingDirectory, options);
    this.sandbox = sandbox;
  }

  /** Creates a machine, which is destroyed by `destroy` or after `expiresInSec` (default: 1800). */
  static async create(options: SandbarSessionOptions = {}): Promise<SandbarSession> {
    const { expiresInSec = DEFAULT_EXPIRY_SEC } = options;
    const sandbox = await Sandbox.create({ ...options, expiresInSec });
    try {
      return await SandbarSession.from(sandbox, options);
    } catch (error) {
      await sandbox.destroy().catch(() => undefined);
      throw error;
    }
  }

  /** The session of a machine that runs already. Throws NotFoundError when the machine does not exist. */
  static async connect(id: string, options: WithClient & SessionOptions = {}): Promise<SandbarSession> {
    return SandbarSession.from(await Sandbox.connect(id, options), options);
  }

  /** The session of a machine whose handle comes from `@sandbar/sdk`. */
  static async from(sandbox: Sandbox, options: SessionOptions = {}): Promise<SandbarSession> {
    return new SandbarSession(sandbox, await findWorkingDirectory(sandbox, options.workingDirectory), options);
  }

  get id(): string {
    return this.sandbox.id;
  }

  /** Destroys the machine and its disk. Does nothing when the machine is destroyed already. */
  destroy(): Promise<void> {
    return this.sandbox.destroy();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.destroy();
  }
}
