// Tests that machines from a snapshot are clones of the snapshot's template, which goes when the snapshot goes. Uses a
// fake hypervisor with the real templates and machines.
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { describe, it } from 'node:test';
import { create, idOf, keyOf, specOf, vmOf, wayOf } from './support/clones.ts';
import { FakeHost, until } from './support/fake-host.ts';

const SNAPSHOT = '019a0000-0000-7000-8000-000000000101';

describe('templates of snapshots', () => {
  it('the second machine from a snapshot is a clone, and the template is removed with the snapshot', async () => {
    const host = new FakeHost({ size: 0 });
    try {
      await host.start();
      await create(host, 1);
      await until('a template', () => host.templates?.has(keyOf(host)) === true);
      await host.registry.takeSnapshot(idOf(1), SNAPSHOT, { generation: 1, memory: false });
      const from = (number: number) =>
        host.registry.ensure(idOf(number), {
          generation: 1,
          desired: 'running',
          spec: { ...specOf(number), snapshot_id: SNAPSHOT },
        });
      const count = () => readdirSync(host.paths.templates).filter((name) => !name.startsWith('.')).length;
      await from(2);
      assert.equal(wayOf(host, 2), 'boot');
      await until('its template, and a bare one', () => count() === 3);
      await until('it is done', () => !readdirSync(host.paths.templates).some((name) => name.startsWith('.')));
      await from(3);
      assert.equal(wayOf(host, 3), 'clone now');
      const { vmId } = vmOf(host, 3);
      const spec = host.hypervisor.launched.find((one) => one.vmId === vmId);
      const [layer] = host.snapshots.find(SNAPSHOT)?.layers ?? [];
      assert.match(spec?.diskPath ?? '', /\.clone$/, "its disk is a copy of the template's");
      assert.deepEqual(spec?.layerPaths, [host.layers.pathOf(layer ?? '')]);
      for (const number of [1, 2, 3]) await host.registry.destroy(idOf(number), 2);
      host.garbage.collect();
      assert.equal(count(), 3, 'the snapshot still needs its layer');
      host.snapshots.remove(SNAPSHOT);
      host.garbage.collect();
      assert.equal(count(), 2);
      assert.deepEqual(readdirSync(host.paths.layers), []);
      assert.ok(host.templates?.has(keyOf(host)));
      await host.close();
    } finally {
      host.remove();
    }
  });

  it('a layer that only a template in the making needs is removed when the template is made', async () => {
    const host = new FakeHost({ size: 0 });
    try {
      await host.start();
      await create(host, 1);
      await host.registry.takeSnapshot(idOf(1), SNAPSHOT, { generation: 1, memory: false });
      const spec = { ...specOf(2), snapshot_id: SNAPSHOT };
      await host.registry.ensure(idOf(2), { generation: 1, desired: 'running', spec });
      for (const number of [1, 2]) await host.registry.destroy(idOf(number), 2);
      host.snapshots.remove(SNAPSHOT);
      host.garbage.collect();
      assert.notDeepEqual(readdirSync(host.paths.layers), [], 'the template in the making keeps its layer');
      await until('the layer is removed', () => readdirSync(host.paths.layers).length === 0);
      await host.close();
    } finally {
      host.remove();
    }
  });
});
