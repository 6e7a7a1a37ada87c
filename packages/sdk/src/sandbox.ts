// A handle of one machine: create the machine, run commands, transfer files, open ports, destroy the machine.
import type { Exec } from '@sandbar/contract/exec.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Snapshot } from '@sandbar/contract/snapshot.ts';
import { type CallOptions, callOptions } from './call-options.ts';
import { Client, type ClientOptions } from './client.ts';
import { ExecResult } from './exec-result.ts';
import type { Files } from './files.ts';
import type { Job } from './job.ts';
import type { DestroyOptions, MachineFilter } from './machines.ts';
import type { Ports } from './ports.ts';
import {
  type ExecOptions,
  execCreateOf,
  type MachineOptions,
  machineCreateOf,
  machineUpdateOf,
  type SandboxUpdate,
} from './sandbox-options.ts';
import { NotFoundError } from './service-errors.ts';
import type { TerminalConnection } from './terminal-connection.ts';
import type { OpenTerminalOptions } from './terminals.ts';

/** The client to use. Without `client`, the other options configure a new client. */
export type WithClient = ClientOptions & { client?: Client | undefined };

export type SandboxOptions = MachineOptions &
  WithClient &
  CallOptions & {
    /** 1 to 255 printable characters. Within 24 hours, every create with the same key returns the same machine. */
    idempotencyKey?: string | undefined;
  };

/**
 * One machine. `await using sandbox = await Sandbox.create()` destroys it at the end of the block. The methods throw the
 * same errors as those of {@link Client}.
 */
export class Sandbox implements AsyncDisposable {
  readonly id: string;
  readonly client: Client;
  readonly files: Files;
  readonly ports: Ports;

  /** Sends nothing. Use `Sandbox.create`, `Sandbox.connect` or `client.sandbox(id)`. */
  constructor(client: Client, id: string) {
    this.client = client;
    this.id = id;
    this.files = client.files(id);
    this.ports = client.ports(id);
  }

  /** Creates a machine and resolves when it runs. A retry never creates a second machine. */
  static async create(options: SandboxOptions = {}): Promise<Sandbox> {
    const client = clientOf(options);
    const { idempotencyKey } = options;
    const call = { ...callOptions(options), ...(idempotencyKey === undefined ? {} : { idempotencyKey }) };
    const { id } = await client.machines.create(machineCreateOf(options), call);
    return new Sandbox(client, id);
  }

  /** Returns a handle of a running or stopped machine. Throws NotFoundError when it does not exist or is destroyed. */
  static async connect(id: string, options: WithClient & CallOptions = {}): Promise<Sandbox> {
    const client = clientOf(options);
    const { state } = await client.machines.get(id, callOptions(options));
    if (state === 'destroyed') {
      const detail = `The machine ${id} was destroyed.`;
      throw new NotFoundError({ status: 404, code: 'not_found', detail, requestId: null, retryAfterSec: null });
    }
    return new Sandbox(client, id);
  }

  /** The machines that match the filter, newest first. Destroyed machines are left out unless `state` asks for them. */
  static async list(options: MachineFilter & WithClient & CallOptions = {}): Promise<Sandbox[]> {
    const client = clientOf(options);
    const { state, name, metadata } = options;
    const machines = await client.machines.list({ state, name, metadata }, callOptions(options));
    return machines.map(({ id }) => new Sandbox(client, id));
  }

  /** The record of the machine as it is now: its state, size, address and times. */
  info(call?: CallOptions): Promise<Machine> {
    return this.client.machines.get(this.id, call);
  }

  /**
   * Runs a command to its end and resolves with its exit code and output, even when the command fails. Text is run by
   * `/bin/sh -c`; an array is a program with its arguments. A short command takes one request. An abort does not end the
   * command. Throws JobLostError when the machine stops or dies meanwhile.
   */
  async exec(command: string | readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    const { job, stdout, stderr } = await this.client.execs.run(
      this.id,
      execCreateOf(command, options),
      callOptions(options),
    );
    return new ExecResult(job, stdout, stderr);
  }

  /**
   * Starts a command and resolves as soon as the service has accepted it. With `stdinOpen` you can write more input to
   * the job's `stdin` until you close it.
   */
  start(
    command: string | readonly string[],
    options: ExecOptions & { stdinOpen?: boolean | undefined } = {},
  ): Promise<Job> {
    const { stdinOpen } = options;
    return this.client.execs.startJob(this.id, execCreateOf(command, options), {
      ...callOptions(options),
      stdinOpen,
    });
  }

  /** A handle of a job that was started before. Sends nothing. */
  job(id: string): Job {
    return this.client.execs.job(this.id, id);
  }

  /** The jobs of the machine, newest first. */
  jobs(call?: CallOptions): Promise<Exec[]> {
    return this.client.execs.list(this.id, call);
  }

  /** Opens a terminal in the machine, or joins a running terminal. */
  terminal(options?: OpenTerminalOptions): Promise<TerminalConnection> {
    return this.client.terminals.open(this.id, options);
  }

  /** Takes a snapshot of the disk, and with `memory` also of the running processes. */
  snapshot(options: CallOptions & { name?: string | undefined; memory?: boolean | undefined } = {}): Promise<Snapshot> {
    const { name, memory } = options;
    const spec = { ...(name === undefined ? {} : { name }), ...(memory === undefined ? {} : { memory }) };
    return this.client.snapshots.create(this.id, spec, callOptions(options));
  }

  /** Changes the given fields and keeps the others. `expiresInSec` counts from now; null means never. */
  update(changes: SandboxUpdate & CallOptions): Promise<Machine> {
    return this.client.machines.update(this.id, machineUpdateOf(changes), callOptions(changes));
  }

  /** Stops the machine and keeps its disk. */
  stop(call?: CallOptions): Promise<Machine> {
    return this.client.machines.stop(this.id, call);
  }

  /** Starts the machine after a stop, and resolves when it runs. */
  resume(call?: CallOptions): Promise<Machine> {
    return this.client.machines.start(this.id, call);
  }

  /** Destroys the machine and its disk. Does nothing when the machine is destroyed already. */
  async destroy(options?: DestroyOptions): Promise<void> {
    try {
      await this.client.machines.destroy(this.id, options);
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error;
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.destroy();
  }
}

function clientOf({ client, ...options }: WithClient): Client {
  return client ?? new Client(options);
}
