// Tests flattening against a fake monitor whose answers the test controls, with a stop between any two of them.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import { QmpClient } from '../src/hypervisor/qmp.ts';
import { RootNodes } from '../src/hypervisor/root-nodes.ts';

type Command = { execute: string; id: number };

/**
 * A fake QEMU with one disk and at most one job. `before` runs before each command takes effect. If it rejects, QEMU
 * answers with that error.
 */
class FakeMonitor {
  readonly passed: string[] = [];
  before: (command: string) => Promise<void> = async () => {};
  hasJob = false;
  readonly #socket: Socket;

  constructor(socket: Socket) {
    this.#socket = socket;
    let queue = Promise.resolve();
    socket.setEncoding('utf8').on('data', (text: string) => {
      for (const line of text.trim().split('\n')) queue = queue.then(() => this.#answer(JSON.parse(line)));
    });
  }

  endJob(event: 'BLOCK_JOB_COMPLETED' | 'BLOCK_JOB_CANCELLED'): void {
    this.hasJob = false;
    this.#send({ event, data: { device: 'flatten' } });
  }

  async #answer({ execute, id }: Command): Promise<void> {
    this.passed.push(execute);
    try {
      await this.before(execute);
      this.#send({ id, return: this.#effect(execute) });
    } catch (error) {
      this.#send({ id, error: { class: 'GenericError', desc: String(error) } });
    }
  }

  #effect(command: string): unknown {
    if (command === 'query-block-jobs') return this.hasJob ? [{ device: 'flatten' }] : [];
    if (command === 'query-block') return [{ qdev: 'root-disk', inserted: { 'node-name': 'root' } }];
    if (command === 'query-named-block-nodes') return [{ 'node-name': 'root' }];
    if (command === 'block-stream') this.hasJob = true;
    if (command === 'block-job-cancel') {
      if (!this.hasJob) throw new Error('no such job');
      this.endJob('BLOCK_JOB_CANCELLED');
    }
    return {};
  }

  #send(message: object): void {
    this.#socket.write(`${JSON.stringify(message)}\n`);
  }
}

describe('flattening of a root disk', () => {
  const dir = mkdtempSync(join(tmpdir(), 'sandbar-flatten-'));
  const server = createServer();
  let qmp: QmpClient;
  let monitor: FakeMonitor;
  let nodes: RootNodes;
  before(() => new Promise<void>((resolve) => server.listen(join(dir, 'qmp.sock'), resolve)));
  beforeEach(async () => {
    const accepted = once(server, 'connection');
    const socket = connect(join(dir, 'qmp.sock'));
    monitor = new FakeMonitor((await accepted)[0] as Socket);
    qmp?.close();
    qmp = await QmpClient.open(socket);
    nodes = new RootNodes(qmp);
    monitor.passed.length = 0;
  });
  after(() => {
    qmp.close();
    server.close();
    rmSync(dir, { recursive: true });
  });

  const flatten = () => nodes.flatten(join(dir, 'disk.qcow2'), 1);
  /** Requests a stop at the moment when QEMU receives `command`. */
  const stopAt = (command: string) => {
    let stopped: Promise<void> | undefined;
    monitor.before = async (got) => {
      if (got === command) stopped ??= nodes.stopFlatten();
    };
    return () => stopped;
  };
  const listeners = () => qmp.listenerCount('event') + qmp.listenerCount('close');

  for (const command of ['query-block-jobs', 'query-block'])
    it(`a stop during its ${command} prevents the copy`, async () => {
      const stopped = stopAt(command);
      assert.equal(await flatten(), false);
      await stopped();
      assert.ok(!monitor.passed.includes('block-stream'));
      assert.equal(listeners(), 0);
    });

  it('a stop while the copy begins cancels the copy', async () => {
    const stopped = stopAt('block-stream');
    assert.equal(await flatten(), false);
    await stopped();
    assert.deepEqual([monitor.hasJob, listeners()], [false, 0]);
  });

  it('a stop whose query for the job fails still ends the copy', async () => {
    let isAsked = false;
    monitor.before = async (command) => {
      if (command === 'query-block-jobs' && isAsked) throw new Error('no');
      if (command !== 'block-stream') return;
      isAsked = true;
      nodes.stopFlatten().catch(() => {});
    };
    assert.equal(await flatten(), false);
    assert.deepEqual([monitor.hasJob, listeners()], [false, 0]);
  });

  it('a copy that completes before the cancel counts as complete', async () => {
    const isFlat = flatten();
    while (!monitor.hasJob) await qmp.execute('query-block-jobs');
    monitor.before = async (command) => {
      if (command === 'block-job-cancel') monitor.endJob('BLOCK_JOB_COMPLETED');
    };
    await nodes.stopFlatten();
    assert.equal(await isFlat, true);
    assert.ok(monitor.passed.includes('blockdev-reopen'));
    assert.equal(listeners(), 0);
  });

  it('a copy that QEMU cannot flush counts as failed', async () => {
    monitor.before = async (command) => {
      if (command === 'blockdev-reopen') throw new Error('Error flushing drive: No space left on device');
      if (command === 'query-block-jobs' && monitor.hasJob) monitor.endJob('BLOCK_JOB_COMPLETED');
    };
    const failed = assert.rejects(flatten(), /Error flushing drive/);
    while (!monitor.passed.includes('blockdev-reopen')) await qmp.execute('query-block-jobs');
    await failed;
    assert.ok(!monitor.passed.includes('query-named-block-nodes'));
    assert.equal(listeners(), 0);
  });

  it('a copy that cannot begin, and a closed monitor, are errors instead of hanging calls', async () => {
    monitor.before = async (command) => {
      if (command === 'block-stream') throw new Error('busy');
    };
    await assert.rejects(flatten(), /busy/);
    monitor.before = async () => {};
    const closed = assert.rejects(flatten(), /monitor closed/);
    while (!monitor.hasJob) await qmp.execute('query-block-jobs');
    qmp.close();
    await closed;
    assert.equal(listeners(), 0);
  });
});
