// Tests flattening at the level of a machine: a copy that never ends does not block callers forever, and a full host
// loses no data.
import assert from 'node:assert/strict';
import { tmpdir } from 'node:os';
import { describe, it } from 'node:test';
import type { Vm } from '../src/hypervisor/driver.ts';
import { Flattening, MAX_LAYERS } from '../src/machines/flattening.ts';
import type { RootDisk } from '../src/machines/root-disk.ts';
import type { LayerStore } from '../src/storage/layers.ts';

describe('flattening of a machine', () => {
  function make({ noteFlat = () => {}, stopMs = 60_000 } = {}) {
    const said: string[] = [];
    const { promise: copied, resolve: end } = Promise.withResolvers<boolean>();
    let stops = 0;
    const vm = {
      flattenDisk: () => copied,
      stopFlatten: async () => {
        stops++;
      },
    } as Partial<Vm> as Vm;
    const disk = { layers: Array(MAX_LAYERS + 1).fill('layer'), folder: tmpdir(), path: 'disk.qcow2', noteFlat };
    const queued: Promise<void>[] = [];
    const flattening = new Flattening({
      machineId: 'machine',
      disk: disk as Partial<RootDisk> as RootDisk,
      layers: { has: () => false } as Partial<LayerStore> as LayerStore,
      enqueue: (work) => {
        const done = work();
        queued.push(done);
        return done;
      },
      onFlat: () => void said.push('flat'),
      stopMs,
      log: { info() {}, warn: (_, message) => void said.push(message) },
    });
    flattening.begin(vm);
    const settled = async () => {
      while (queued.length === 0) await new Promise(setImmediate);
      await Promise.all(queued);
    };
    return { flattening, end, said, stops: () => stops, settled };
  }

  it('each caller that waits for a copy that does not end gets an error, until the copy ends', async () => {
    const { flattening, end, stops } = make({ stopMs: 1 });
    for (const expected of [1, 2]) {
      await assert.rejects(flattening.stop(), { code: 'host_unavailable' });
      assert.equal(stops(), expected);
    }
    end(false);
    await flattening.stop();
  });

  it('a caller waits for a copy that ends', async () => {
    const { flattening, end, said } = make();
    const stopped = flattening.stop();
    end(true);
    await stopped;
    assert.deepEqual(said, ['flat']);
  });

  it('a copy that ends after callers gave up waiting is still recorded', async () => {
    const { flattening, end, said, settled } = make({ stopMs: 1 });
    await assert.rejects(flattening.stop(), { code: 'host_unavailable' });
    end(true);
    await settled();
    assert.deepEqual(said, ['flat']);
  });

  it('on a full host the layers stay in the record, after a failed copy and after a stop', async () => {
    const full = {
      noteFlat: () => {
        throw new Error('no room');
      },
    };
    const alone = make(full);
    alone.end(true);
    await alone.settled();
    const stopped = make(full);
    stopped.end(true);
    await stopped.flattening.stop();
    for (const { said } of [alone, stopped])
      assert.deepEqual(said, ['that a long chain of layers was flattened is not recorded']);
  });
});
