// Connects the user's terminal to a terminal in a machine, until the program there ends or the user leaves.
import { spawnSync } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import type { TerminalSessionCreate } from '@sandbar/contract/terminal.ts';
import { TERMINAL_BOUNDS } from '@sandbar/contract/terminal-bounds.ts';
import type { Client } from '@sandbar/sdk/client.ts';
import { signalNumber } from '@sandbar/sdk/exec-result.ts';
import type { TerminalConnection } from '@sandbar/sdk/terminal-connection.ts';
import { UsageError } from './arguments.ts';
import { writeTo } from './output-copy.ts';
import { printNotice, toPrintable } from './print.ts';
import { TerminalEscape } from './terminal-escape.ts';

/** How long a connection must be broken before the user is told, ms. Most breaks are over sooner. */
const TELL_AFTER_MS = 1_000;
/** When the user leaves, how long to wait until the keys typed before are sent, in milliseconds. */
const LEAVE_MS = 1_000;
/** Standard input is paused while more than this many bytes wait to be sent to the terminal. */
const WAITING_BYTES = 64 * 1024;

/**
 * Opens or joins a terminal and resolves with the exit code of its program, or with 0 when the user left. An abort of
 * `signal` leaves the terminal and rejects. Throws UsageError when standard input or output is no terminal.
 */
export async function runTerminal(
  sandbar: Client,
  machineId: string,
  request: TerminalSessionCreate,
  signal: AbortSignal,
): Promise<number> {
  requireTerminal();
  const notices = new Notices();
  const terminal = await sandbar.terminals.open(machineId, {
    ...request,
    ...sizeOfScreen(),
    signal,
    onDisconnect: (reason) => notices.disconnected(reason),
    onReconnect: () => notices.reconnected(),
    onGap: (bytes) => notices.print(`${bytes} bytes of output are lost, because the connection was broken or too slow`),
  });
  const onResize = () => terminal.resize(sizeOfScreen().cols, sizeOfScreen().rows);
  process.stdout.on('resize', onResize);
  const stopInput = sendInput(terminal);
  try {
    for await (const bytes of terminal) {
      await writeTo(process.stdout, bytes, signal);
    }
  } finally {
    stopInput();
    process.stdout.removeListener('resize', onResize);
    notices.stop();
  }
  signal.throwIfAborted();
  const exit = await terminal.exit;
  if (exit === undefined) {
    const minutes = TERMINAL_BOUNDS.idleSecDefault / 60;
    printNotice(
      `left the terminal, which goes on for ${minutes} minutes: sandbar shell ${machineId} --join ${terminal.id}`,
    );
    return 0;
  }
  return exit.code ?? 128 + signalNumber(exit.signal);
}

/** Throws UsageError unless standard input and output are a terminal. */
export function requireTerminal(): void {
  if (process.stdin.isTTY && process.stdout.isTTY) return;
  throw new UsageError(
    'standard input and output must be a terminal; sandbar exec MACHINE -- COMMAND runs a command without one',
  );
}

/** Passes on what the user types. Returns a function that stops this and gives the terminal its old settings. */
function sendInput(terminal: TerminalConnection): () => void {
  const { stdin } = process;
  const keys = new TerminalEscape();
  let waiting = 0;
  const onData = async (data: Buffer) => {
    const { bytes, leaves } = keys.take(data);
    waiting += bytes.length;
    if (waiting > WAITING_BYTES) stdin.pause();
    const writing = terminal.write(bytes);
    if (leaves) {
      // Send what was typed before, but do not wait for long, because the connection may be broken.
      await Promise.race([writing, delay(LEAVE_MS, undefined, { ref: false })]);
      terminal.leave();
    }
    await writing;
    waiting -= bytes.length;
    if (stdin.isPaused() && waiting <= WAITING_BYTES && stdin.isRaw) stdin.resume();
  };
  stdin.setRawMode(true);
  // Even in Node's raw mode the terminal turns a line feed into a carriage return and a line feed. Turn this off,
  // because it breaks full-screen programs.
  spawnSync('stty', ['-opost'], { stdio: ['inherit', 'ignore', 'ignore'] });
  stdin.on('data', onData);
  return () => {
    stdin.removeListener('data', onData);
    stdin.setRawMode(false);
    stdin.pause();
    stdin.unref();
  };
}

function sizeOfScreen(): { cols: number; rows: number } {
  const { columns = 0, rows = 0 } = process.stdout;
  const bounded = (value: number, fallback: number) =>
    value >= 1 ? Math.min(value, TERMINAL_BOUNDS.sizeMax) : fallback;
  return {
    cols: bounded(columns, TERMINAL_BOUNDS.colsDefault),
    rows: bounded(rows, TERMINAL_BOUNDS.rowsDefault),
  };
}

/** Prints notices about the connection. Each notice has its own line within the output of the program. */
class Notices {
  #timer: NodeJS.Timeout | undefined;
  #isTold = false;

  disconnected(reason: string): void {
    this.#timer = setTimeout(() => {
      this.#isTold = true;
      this.print(`the connection broke (${reason}); trying again, and ~. at the beginning of a line leaves`);
    }, TELL_AFTER_MS);
  }

  reconnected(): void {
    this.stop();
    if (this.#isTold) this.print('connected again');
    this.#isTold = false;
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  print(text: string): void {
    process.stderr.write(`\r\nsandbar: ${toPrintable(text)}\r\n`);
  }
}
