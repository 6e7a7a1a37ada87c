// Commands of ComputeSDK: one that is waited for, one in the background, and one whose output is streamed.
import { type ExecOptions, exitCodeOf, type Job, type Sandbox } from '@sandbar/sdk';
import type { CommandResult, RunCommandOptions } from 'computesdk';

/** The longest time that the service lets a command run: a server in the background shall not end after an hour. */
const BACKGROUND_TIMEOUT_SEC = 86_400;

/**
 * Runs a command with `/bin/sh -c`. A command that runs out of `timeout` (ms) is killed and has the exit code 124. In
 * the background it resolves with exit code 0 as soon as the command was started.
 */
export async function runCommand(
  sandbox: Sandbox,
  command: string,
  options: RunCommandOptions = {},
): Promise<CommandResult> {
  const startedAt = performance.now();
  if (options.background) {
    await sandbox.start(command, execOptions(options));
    return { stdout: '', stderr: '', exitCode: 0, durationMs: performance.now() - startedAt };
  }
  const { stdout, stderr, exitCode } = await sandbox.exec(command, execOptions(options));
  return { stdout, stderr, exitCode, durationMs: performance.now() - startedAt };
}

/** Runs a command and passes its output on as it comes. If a callback throws, the command is killed. */
export async function streamCommand(
  sandbox: Sandbox,
  command: string,
  options: RunCommandOptions,
): Promise<CommandResult> {
  const startedAt = performance.now();
  const job = await sandbox.start(command, execOptions(options));
  try {
    const { stdout, stderr } = await readOutput(job, options);
    return { stdout, stderr, exitCode: exitCodeOf(await job.wait()), durationMs: performance.now() - startedAt };
  } catch (error) {
    await job.cancel().catch(() => undefined);
    throw error;
  }
}

async function readOutput(job: Job, { onStdout, onStderr }: RunCommandOptions) {
  const text = { stdout: '', stderr: '' };
  const listeners = { stdout: onStdout, stderr: onStderr };
  // A character may be cut by the end of a chunk, so each stream has its own decoder.
  const decoders = { stdout: newDecoder(), stderr: newDecoder() };
  const add = (stream: 'stdout' | 'stderr', piece: string) => {
    if (piece === '') return;
    text[stream] += piece;
    listeners[stream]?.(piece);
  };
  for await (const { stream, data } of job.output()) add(stream, decoders[stream].decode(data, { stream: true }));
  for (const stream of ['stdout', 'stderr'] as const) add(stream, decoders[stream].decode());
  return text;
}

/** `timeout` is in ms; the service takes whole seconds. */
function execOptions({ cwd, env, timeout, background }: RunCommandOptions): ExecOptions {
  const withoutTimeout = background ? BACKGROUND_TIMEOUT_SEC : undefined;
  return { cwd, env, timeoutSec: timeout === undefined ? withoutTimeout : Math.max(1, Math.ceil(timeout / 1000)) };
}

/** Like `Sandbox.exec`, this keeps a byte order mark. */
const newDecoder = () => new TextDecoder('utf-8', { ignoreBOM: true });
