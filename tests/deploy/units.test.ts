// Tests the systemd units: systemd accepts them, they are closed as far as they can be, and they start the same programs
// with the same options as the supervisor.
import assert from 'node:assert/strict';
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { SECRET_VARIABLES } from '@sandbar/contract/secrets.ts';
import { COLLECTABLE, MEMORY_SETTINGS, nodeArgs, SMALL_HEAP } from '@sandbar/service/supervise/definitions.ts';
import { run } from '../packages/support/run.ts';
import { CHECKOUT, DEPLOY } from './support/checkout.ts';

const FOLDER = path.join(DEPLOY, 'systemd');
const INSTALLED = '/usr/lib/sandbar';
/**
 * The highest exposure that `systemd-analyze security` may find, in tenths: 0 is closed and 100 is open. An agent that
 * makes namespaces, mounts and network interfaces cannot be closed much further.
 */
const EXPOSURE = {
  'sandbar-control-plane.service': 15,
  'sandbar-host-agent.service': 57,
  'sandbar.service': 57,
} as const;
const UNITS = Object.keys(EXPOSURE) as (keyof typeof EXPOSURE)[];

const scratch = await mkdtemp(path.join(tmpdir(), 'sandbar-units-'));
after(() => rm(scratch, { recursive: true }));

const read = (unit: string) => readFile(path.join(FOLDER, unit), 'utf8');

/** The values of a setting, in their order. */
const valuesOf = (text: string, name: string) =>
  Array.from(text.matchAll(new RegExp(`^${name}=(.*)$`, 'gm')), ([, value = '']) => value);

describe('the systemd units', () => {
  it('are all tested', async () => {
    const units = (await readdir(FOLDER)).filter((name) => name.endsWith('.service'));
    assert.deepEqual(units.sort(), [...UNITS].sort());
  });

  for (const unit of UNITS) {
    it(`${unit} is accepted by systemd without a complaint`, async () => {
      // systemd looks whether the programs are there, so take those of the checkout.
      const file = path.join(scratch, unit);
      await writeFile(file, (await read(unit)).replaceAll(INSTALLED, CHECKOUT));
      const { code, stdout, stderr } = await run('systemd-analyze', ['verify', '--man=no', file], { cwd: scratch });
      assert.deepEqual({ code, stdout, stderr }, { code: 0, stdout: '', stderr: '' });
    });

    it(`${unit} stays below its limit of exposure`, async () => {
      await cp(path.join(FOLDER, unit), path.join(scratch, 'security', unit), { recursive: true });
      const options = ['security', '--offline=true', '--no-pager', `--threshold=${EXPOSURE[unit]}`];
      const { code, stdout } = await run('systemd-analyze', [...options, path.join(scratch, 'security', unit)], {
        cwd: scratch,
      });
      assert.equal(code, 0, stdout);
    });
  }

  it('start the programs with the options that the supervisor gives them', async () => {
    const node = `${INSTALLED}/node_modules/node/bin/node`;
    const controlPlane = await read('sandbar-control-plane.service');
    const expected = nodeArgs(INSTALLED, 'control-plane', SMALL_HEAP, COLLECTABLE);
    assert.deepEqual(valuesOf(controlPlane, 'ExecStart'), [[node, ...expected].join(' ')]);
    const memory = Object.entries(MEMORY_SETTINGS).map(([name, value]) => `${name}=${value}`);
    assert.ok(valuesOf(controlPlane, 'Environment').includes(memory.join(' ')));

    const agent = nodeArgs(INSTALLED, 'host-agent', COLLECTABLE);
    assert.deepEqual(valuesOf(await read('sandbar-host-agent.service'), 'ExecStart'), [[node, ...agent].join(' ')]);
  });

  it('give a replica its secrets as credentials and not in its environment', async () => {
    const text = await read('sandbar-control-plane.service');
    const variables = valuesOf(text, 'Environment').flatMap((value) => value.split(' '));
    const secrets = SECRET_VARIABLES.filter((name) => variables.some((entry) => entry.startsWith(`${name}=`)));
    assert.deepEqual(secrets, []);
    for (const credential of valuesOf(text, 'LoadCredential')) {
      const [name] = credential.split(':');
      assert.ok(variables.some((entry) => entry.endsWith(`_FILE=%d/${name}`)));
    }
  });

  it('leave the machines of a stopped agent alone', async () => {
    assert.deepEqual(valuesOf(await read('sandbar-host-agent.service'), 'KillMode'), ['process']);
  });
});
