// Tests saving the memory of a VM: a small real process has the guest's memory, and a fake monitor stops and continues
// it. Needs the right to read other processes.
import assert from 'node:assert/strict';
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { after, describe, it } from 'node:test';
import type { MemorySave } from '../src/hypervisor/driver.ts';
import { type ProcessInfo, processInfo } from '../src/hypervisor/process.ts';
import { QEMU_FDS } from '../src/hypervisor/qemu-args.ts';
import { prepareMemory } from '../src/hypervisor/save-memory.ts';
import { makeSealedMemory } from '../src/hypervisor/sealed-memory.ts';
import { BLOCK_BYTES, sumOfSparseFile } from '../src/storage/sparse-file.ts';
import { openMonitor } from './support/fake-monitor.ts';

const PAGE = 4096;
const BYTES = 70 * BLOCK_BYTES;
const PAGES_PER_BLOCK = BLOCK_BYTES / PAGE;
const DEVICES = 'the devices';

/** A program that maps the memory, prints its address, and writes a page for each line of input: number and text. */
const PROCESS = `
import ctypes, mmap, sys
fd = int(sys.argv[1])
flags = mmap.MAP_PRIVATE | (mmap.MAP_ANONYMOUS if fd < 0 else 0)
memory = mmap.mmap(fd, ${BYTES}, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
print(ctypes.addressof(ctypes.c_char.from_buffer(memory)), flush=True)
for line in sys.stdin:
  page, text = line.split()
  memory[int(page) * ${PAGE}:(int(page) + 1) * ${PAGE}] = (text * ${PAGE}).encode()[:${PAGE}]
  print("written", flush=True)
`;

/** A process with the memory of a guest. `memory` is what the memory must contain. */
class Guest {
  readonly memory: Buffer;
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #lines: AsyncIterator<string>;

  constructor(base: number | undefined, memory: Buffer) {
    this.memory = memory;
    const fd = base === undefined ? -1 : QEMU_FDS.memory;
    this.#child = spawn('python3', ['-c', PROCESS, String(fd)], {
      stdio: ['pipe', 'pipe', 'inherit', 'ignore', base ?? 'ignore'],
    }) as ChildProcessByStdio<Writable, Readable, null>;
    this.#lines = createInterface(this.#child.stdout)[Symbol.asyncIterator]();
  }

  get process() {
    return processInfo(this.#child.pid ?? 0) ?? assert.fail('it has ended');
  }

  async address(): Promise<number> {
    return Number((await this.#lines.next()).value);
  }

  async write(page: number, text: string): Promise<void> {
    this.#child.stdin.write(`${page} ${text}\n`);
    await this.#lines.next();
    this.memory.fill(text, page * PAGE, (page + 1) * PAGE);
  }

  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.kill('SIGKILL');
    await once(this.#child, 'exit');
  }
}

describe('the memory of a running VM', () => {
  const dir = mkdtempSync(join(tmpdir(), 'sandbar-save-'));
  after(() => rmSync(dir, { recursive: true }));
  let count = 0;

  /** Calls `work` with a guest and its VM. `onStop` runs when the fake monitor gets the command to stop the VM. */
  async function withVm(
    isClone: boolean,
    work: (vm: {
      guest: Guest;
      commands: string[];
      onStop: { do: () => Promise<void> };
      status: { now: string };
      prepare: (maxBytes: number, process?: ProcessInfo) => Promise<MemorySave>;
      place: { memoryPath: string; statePath: string; bytes: number };
    }) => Promise<void>,
  ): Promise<void> {
    const name = String(++count);
    const memory = Buffer.alloc(BYTES);
    const base = isClone
      ? await makeSealedMemory('test', BYTES, async (fd) => {
          for (const page of [3, 4, 5 * PAGES_PER_BLOCK, 69 * PAGES_PER_BLOCK + 7]) {
            memory.fill('base', page * PAGE, (page + 1) * PAGE);
            writeSync(fd, memory, page * PAGE, PAGE, page * PAGE);
          }
        })
      : undefined;
    const guest = new Guest(base, memory);
    const address = await guest.address();
    const commands: string[] = [];
    const onStop = { do: async () => {} };
    const status = { now: 'running' };
    const answer = async (execute: string, filename: unknown) => {
      if (execute === 'query-status') return { running: status.now === 'running', status: status.now };
      if (execute === 'human-monitor-command')
        return `Host virtual address for 0x0 (ram) is 0x${address.toString(16)}\r\n`;
      if (execute === 'stop') await onStop.do();
      if (execute === 'xen-save-devices-state') writeFileSync(join(dir, String(filename)), DEVICES);
      return {};
    };
    const monitor = await openMonitor(dir, `${name}.sock`, ({ execute, arguments: args, id }, qemu) => {
      commands.push(execute);
      void answer(execute, args?.filename).then((value) => qemu.write(`${JSON.stringify({ return: value, id })}\n`));
    });
    const place = { memoryPath: join(dir, `${name}.memory`), statePath: join(dir, `${name}.state`), bytes: BYTES };
    const prepare = (maxBytes: number, process = guest.process) =>
      prepareMemory(monitor.qmp, { process, runDir: dir, isClone }, place, maxBytes);
    try {
      await work({ guest, commands, onStop, status, prepare, place });
    } finally {
      monitor.close();
      await guest.kill();
      if (base !== undefined) closeSync(base);
    }
  }

  for (const isClone of [false, true])
    for (const [room, maxBytes] of [
      ['room for all pages', BYTES],
      ['room for a few pages', 2 * PAGE],
      ['no room', 0],
    ] as const)
      it(`is saved as it was when the VM stood still (${isClone ? 'a clone' : 'booted cold'}, ${room}) (CLN-4)`, async () => {
        await withVm(isClone, async ({ guest, commands, onStop, prepare, place }) => {
          for (const page of [0, 4, 300, 301, 900]) await guest.write(page, 'before');
          for (let page = 0; page < PAGES_PER_BLOCK; page++) await guest.write(20 * PAGES_PER_BLOCK + page, 'whole');
          const save = await prepare(maxBytes);
          await guest.write(300, 'changed');
          await guest.write(302, 'new');
          await save.catchUp();
          onStop.do = async () => {
            await guest.write(301, 'last');
            await guest.write(900, 'a');
            for (const page of [1, 303, 68 * PAGES_PER_BLOCK, BYTES / PAGE - 1]) await guest.write(page, 'found');
          };
          let isSwitched = false;
          await save.save(async () => {
            assert.equal(commands.at(-1), 'xen-save-devices-state');
            isSwitched = true;
          });
          assert.equal(isSwitched, true);
          assert.equal(commands.at(-1), 'cont');
          const expected = Buffer.from(guest.memory);
          for (const page of [0, 4, 300, 1000]) await guest.write(page, 'later');
          const sum = await save.complete();
          assert.ok(readFileSync(place.memoryPath).equals(expected), 'the memory of that moment');
          assert.equal(sum, await sumOfSparseFile(place.memoryPath, BYTES));
          assert.equal(readFileSync(place.statePath, 'utf8'), DEVICES);
        });
      });

  it('a failed disk switch is thrown after the VM runs again, and leaves nothing open', async () => {
    await withVm(true, async ({ guest, commands, prepare }) => {
      await guest.write(0, 'own');
      const before = readdirSync('/proc/self/fd').length;
      const save = await prepare(BYTES);
      await assert.rejects(
        save.save(() => Promise.reject(new Error('no switch'))),
        /no switch/,
      );
      assert.equal(commands.at(-1), 'cont');
      await assert.rejects(save.complete(), /was not saved/);
      await save.abandon();
      assert.equal(readdirSync('/proc/self/fd').length, before);
    });
  });

  it('a QEMU that ends meanwhile is an error at every step', async () => {
    for (const step of ['catchUp', 'save'] as const)
      await withVm(false, async ({ guest, prepare }) => {
        await guest.write(0, 'own');
        const save = await prepare(BYTES);
        await guest.kill();
        await assert.rejects(step === 'save' ? save.save(async () => {}) : save.catchUp());
        await save.abandon();
      });
  });

  it('the memory of another process that got the pid of an ended QEMU is never saved', async () => {
    await withVm(false, async ({ guest, prepare }) => {
      await guest.write(0, 'secret');
      const ended = { ...guest.process, startTicks: '1' };
      await assert.rejects(prepare(BYTES, ended), /QEMU ended/);
    });
  });

  it('a VM that does not run is a conflict, and is not made to run', async () => {
    for (const [now, message] of [
      ['io-error', /waits for disk space/],
      ['shutdown', /has just ended/],
    ] as const)
      await withVm(false, async ({ commands, status, prepare }) => {
        const save = await prepare(BYTES);
        status.now = now;
        await assert.rejects(
          save.save(async () => {}),
          { code: 'conflict', message },
        );
        assert.deepEqual(commands.slice(-1), ['query-status']);
        await assert.rejects(save.complete(), /was not saved/);
      });
  });
});
