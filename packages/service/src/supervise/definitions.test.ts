// Tests what the control plane is started with after the files of the dashboard have disappeared.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { readConfig } from '../config.ts';
import { controlPlaneDefinition } from './definitions.ts';
import { type Confinement, noConfinement } from './launch.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'sandbar-definitions-'));
after(() => rmSync(folder, { recursive: true }));

describe('the control plane', () => {
  it('is started with the dashboard while its files are there, and else without it', async () => {
    const log = openSync(path.join(folder, 'log'), 'a');
    const written = path.join(folder, 'environment');
    const dashboard = path.join(folder, 'dashboard');
    mkdirSync(dashboard);
    writeFileSync(path.join(dashboard, 'index.html'), 'page');

    let bound: string[] = [];
    const confine = (): Confinement => {
      bound = [];
      return {
        ...noConfinement(folder),
        bind: (from, name) => {
          bound.push(from);
          return `/shown/${name}`;
        },
        // Instead of the control plane, this command writes its environment to a file.
        wrap: () => ['/bin/sh', '-c', `/usr/bin/env > ${written}`],
      };
    };
    const config = readConfig({ SANDBAR_HOME: folder }, 1000);
    const definition = controlPlaneDefinition(config, 'x'.repeat(40), confine, dashboard);
    const start = async () => {
      await once(definition.spawn(log), 'exit');
      return readFileSync(written, 'utf8');
    };

    assert.match(await start(), /^SANDBAR_DASHBOARD_DIR=\/shown\/dashboard$/m);
    assert.ok(bound.includes(dashboard));
    rmSync(path.join(dashboard, 'index.html'));
    for (const missing of ['the page', 'the folder']) {
      assert.doesNotMatch(await start(), /SANDBAR_DASHBOARD_DIR/, missing);
      assert.ok(!bound.includes(dashboard), missing);
      rmSync(dashboard, { recursive: true, force: true });
    }
  });
});
