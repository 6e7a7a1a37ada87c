// Runs commands for ComputeSDK: to their end, in the background, or with streamed output.
import { type ExecOptions, exitCodeOf, type Job, type Sandbox } from '@sandbar/sdk';
import type { CommandResult, RunCommandOptions } from 'computesdk';

/** The service's maximum. Background commands get it, because a server must not end after the default of one hour. */
const BACKGROUND_TIMEOUT_SEC = 86_400;

/**
 * Runs a command with `/bin/sh -c`. When the command runs longer than `timeout` (ms), it is killed and its exit code is
 * 124. With `background` this resolves with exit code 0 as soon as the command was started.
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

/** Runs a command and passes its output to the callbacks as it arrives. If a callback throws, the command is killed. */
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
  // A chunk may end inside a character, so each stream needs its own decoder.
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

/** Rounds `timeout` (ms) up, because the service accepts only whole seconds. */
function execOptions({ cwd, env, timeout, background }: RunCommandOptions): ExecOptions {
  const withoutTimeout = background ? BACKGROUND_TIMEOUT_SEC : undefined;
  return { cwd, env, timeoutSec: timeout === undefined ? withoutTimeout : Math.max(1, Math.ceil(timeout / 1000)) };
}

/** Like `Sandbox.exec`, this keeps a byte order mark. */
const newDecoder = () => new TextDecoder('utf-8', { ignoreBOM: true });
