// Terminals in real microVMs, through the whole service: what a shell gets, that a terminal outlives connections and
// processes of the service, and that output nobody reads disturbs nobody.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { after, before, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import { Client } from '@sandbar/sdk/client.ts';
import type { TerminalConnection } from '@sandbar/sdk/terminal-connection.ts';
import type { OpenTerminalOptions } from '@sandbar/sdk/terminals.ts';
import { restart } from './support/host.ts';
import {
  API_KEY,
  BASE_URL,
  createMachine,
  destroyMachine,
  expectStatus,
  pidOf,
  residentMb,
  sh,
  until,
} from './support/service.ts';

const CLI = new URL('../../packages/cli/bin/sandbar.mjs', import.meta.url).pathname;
const sandbar = new Client({ baseUrl: BASE_URL, apiKey: API_KEY });

/** A terminal whose output is read as it comes. */
class Screen {
  readonly terminal: TerminalConnection;
  text = '';
  readonly ended: Promise<void>;

  constructor(terminal: TerminalConnection) {
    this.terminal = terminal;
    this.ended = this.#read();
    // A test that waits for the end gets the error.
    this.ended.catch(() => undefined);
  }

  static async open(machineId: string, options: OpenTerminalOptions = {}): Promise<Screen> {
    return new Screen(await sandbar.terminals.open(machineId, options));
  }

  async #read(): Promise<void> {
    for await (const bytes of this.terminal) this.text += Buffer.from(bytes);
  }

  shows(what: RegExp): Promise<void> {
    return until(`the terminal shows ${what}, not ${JSON.stringify(this.text.slice(-500))}`, () =>
      what.test(this.text),
    );
  }
}

/** Prints numbered lines in two parts, slowly, and waits for a key before the second part and at the end. */
const LINES = 2000;
const COUNT = `stty -echo; i=0; for part in 1 2; do
  while [ $i -lt $((part * ${LINES / 2})) ]; do echo "line $i"; i=$((i+1)); [ $((i % 20)) = 0 ] && sleep 0.1; done
  read -r key; done; exit 9`;
const COUNTED = Array.from({ length: LINES }, (_, at) => `line ${at}\r\n`).join('');

describe('a terminal', () => {
  let machine: Machine;
  let other: Machine;
  before(async () => {
    [machine, other] = await Promise.all([createMachine({ env: { OF_MACHINE: 'm' } }), createMachine()]);
  });
  after(() => Promise.all([machine, other].map(({ id }) => destroyMachine(id))));

  it('is a login shell with the environment of the machine, and ends with its exit code', async () => {
    const screen = await Screen.open(machine.id, { cols: 100, rows: 30, env: { OF_REQUEST: 'r' } });
    // The words are put together by the shell, so that the echo of the typed line does not match.
    await screen.terminal.write('echo "<$OF_MACHINE-$OF_REQUEST-$TERM-$PWD-$(id -un)-$(stty size)>"; tty\r');
    await screen.shows(/<m-r-xterm-256color-\/root-root-30 100>/);
    await screen.shows(/\/dev\/pts\/\d+/);
    screen.terminal.resize(132, 43);
    await screen.terminal.write('until [ "$(stty size)" = "43 132" ]; do sleep 0.1; done; exit 7\r');
    await screen.ended;
    assert.deepEqual(await screen.terminal.exit, { type: 'exit', code: 7, signal: null });
  });

  it('runs a command as a user, and a key reaches it as a signal', async () => {
    const screen = await Screen.open(machine.id, {
      command: ['sh', '-c', 'trap "echo caught; exit 3" INT; id -un; pwd; while :; do sleep 0.1; done'],
      user: 'nobody',
      cwd: '/tmp',
    });
    await screen.shows(/nobody\r\n\/tmp\r\n/);
    await screen.terminal.write('\u0003');
    await screen.ended;
    assert.match(screen.text, /caught/);
    assert.equal((await screen.terminal.exit)?.code, 3);
  });

  it('is joined by others and outlives all connections', async () => {
    const first = await Screen.open(machine.id);
    await first.terminal.write("cd /usr; X=kept; echo rea''dy\r");
    await first.shows(/ready/);
    const second = await Screen.open(machine.id, { terminal_id: first.terminal.id });
    await second.shows(/ready/);
    await second.terminal.write('echo "from-$X"\r');
    await Promise.all([first.shows(/from-kept/), second.shows(/from-kept/)]);
    first.terminal.leave();
    second.terminal.leave();
    await until('nobody is connected', async () => {
      const terminals = await sandbar.terminals.list(machine.id);
      return terminals.find(({ id }) => id === first.terminal.id)?.connections === 0;
    });
    const third = await Screen.open(machine.id, { terminal_id: first.terminal.id });
    assert.equal(await first.terminal.exit, undefined);
    await third.terminal.write('pwd; exit 0\r');
    await third.ended;
    assert.match(third.text, /from-kept/);
    assert.match(third.text, /\/usr\r\n/);
    await until('it is not listed', async () => {
      const terminals = await sandbar.terminals.list(machine.id);
      return terminals.every(({ id }) => id !== first.terminal.id);
    });
  });

  for (const name of ['control-plane', 'host-agent'] as const) {
    it(`goes on after a kill -9 of the ${name}, and no byte of its output is lost or repeated`, async () => {
      let breaks = 0;
      const gaps: number[] = [];
      const screen = await Screen.open(machine.id, {
        command: ['sh', '-c', COUNT],
        onDisconnect: () => breaks++,
        onGap: (bytes) => gaps.push(bytes),
      });
      for (const part of [0, 1]) {
        await screen.shows(new RegExp(`line ${part * 1000 + 50}\r`));
        await restart([name], 'SIGKILL');
        await screen.shows(new RegExp(`line ${part * 1000 + 999}\r`));
        await screen.terminal.write('\r');
      }
      await screen.ended;
      assert.equal(screen.text, COUNTED);
      assert.deepEqual(gaps, []);
      assert.equal(breaks, 2);
      assert.deepEqual(await screen.terminal.exit, { type: 'exit', code: 9, signal: null });
    });
  }

  it('with output that nobody reads takes no memory of the service, and other machines do not notice (RES-10)', async () => {
    const processes = ['control-plane', 'host-agent'] as const;
    const before = processes.map((name) => residentMb(pidOf(name)));
    // One that is connected and never read, and one without a connection.
    const unread = await sandbar.terminals.open(machine.id, { command: ['yes'] });
    const left = await sandbar.terminals.open(machine.id, { command: ['yes', 'no'] });
    left.leave();
    for (let job = 0; job < 10; job++) assert.equal((await sh(other.id, 'echo works')).stdout, 'works\n');
    for (const [at, name] of processes.entries()) {
      const grown = residentMb(pidOf(name)) - (before[at] ?? 0);
      assert(grown < 32, `the ${name} has grown by ${grown} MiB`);
    }
    assert.equal((await sh(machine.id, 'echo works too')).stdout, 'works too\n');
    const terminals = await sandbar.terminals.list(machine.id);
    assert(terminals.some(({ id }) => id === left.id));
    await Promise.all([unread, left].map(({ id }) => sandbar.terminals.end(machine.id, id)));
    unread.leave();
  });

  it('ends with a clear error when its machine is stopped', async () => {
    const own = await createMachine();
    const screen = await Screen.open(own.id);
    await expectStatus(200, 'POST', `/v1/machines/${own.id}/stop`);
    await assert.rejects(screen.ended, { status: 409, code: 'conflict' });
    await assert.rejects(sandbar.terminals.open(own.id), { status: 409, code: 'conflict' });
    await destroyMachine(own.id);
  });
});

describe('the command line', () => {
  /** Runs the CLI in a pseudo-terminal of its own. `keys` says what is typed once the output matches. */
  async function inTerminal(
    args: string[],
    keys: [when: RegExp, type: string][],
  ): Promise<{ code: number; text: string }> {
    const quoted = [process.execPath, CLI, ...args].map((arg) => `'${arg}'`).join(' ');
    const child = spawn('script', ['-qefc', `stty cols 90 rows 25; ${quoted}`, '/dev/null'], {
      env: { ...process.env, TERM: 'vt100' },
    });
    let text = '';
    let from = 0;
    const left = [...keys];
    child.stdout.on('data', (chunk) => {
      text += chunk;
      const [next] = left;
      const match = next?.[0].exec(text.slice(from));
      if (!next || !match) return;
      from = text.length;
      left.shift();
      child.stdin.write(next[1]);
    });
    const code = await new Promise<number>((resolve) => child.once('close', resolve));
    assert.deepEqual(left, [], `everything was typed: ${JSON.stringify(text)}`);
    return { code, text };
  }

  it('opens a shell of the size of the screen, leaves it with ~. and joins it again', async () => {
    const machine = await createMachine();
    try {
      const first = await inTerminal(
        ['shell', machine.id, '--env', 'A=b'],
        [
          [/[#$] $/, 'X=kept; echo "$A-$TERM-$(stty size)-end"\r'],
          [/b-vt100-25 90-end/, '~.'],
        ],
      );
      assert.equal(first.code, 0);
      const [, id = ''] = /--join ([\w-]+)/.exec(first.text) ?? [];
      const second = await inTerminal(['shell', machine.id, '--join', id], [[/25 90-end/, 'echo "<$X>"; exit 5\r']]);
      assert.equal(second.code, 5);
      assert.match(second.text, /<kept>/);
    } finally {
      await destroyMachine(machine.id);
    }
  });

  it('runs a command of a machine of its own in a terminal', async () => {
    const { code, text } = await inTerminal(
      ['run', '--memory', '256', '-it', '--', 'sh', '-c', 'tty; read -r line; echo got $line; exit 4'],
      [[/\/dev\/pts/, 'something\r']],
    );
    assert.equal(code, 4);
    assert.match(text, /got something/);
  });
});
