// A change of SANDBAR_SECRET: the key of the fleet's authority goes over to the new secret.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, it } from 'node:test';
import { homePaths } from '@sandbar/contract/home.ts';
import type { Config } from '../src/config.ts';
import { startControlPlane } from '../src/control-plane.ts';
import { readAuthorities, unlockAuthority } from '../src/fleet/authorities.ts';
import { startTestBed } from './support/test-bed.ts';

const NEW = 'a new secret that is long enough as well';
const bed = await startTestBed();
const { config, db, log } = bed.plane.app;

/** Starts a replica with these secrets, and ends it. Rejects when it does not start. */
async function runReplica(secrets: Pick<Config, 'secret' | 'oldSecret'>): Promise<void> {
  const home = mkdtempSync(join(tmpdir(), 'sandbar-secret-'));
  after(() => rmSync(home, { recursive: true }));
  const { adminSocket } = homePaths(home);
  const plane = await startControlPlane({ ...config, hasLocalHost: false, home, adminSocket, ...secrets }, log);
  await plane.close();
}

it('a replica that starts with both secrets gives the fleet to the new one, and may be started again', async () => {
  const before = await readAuthorities(db, config.secret);
  await assert.rejects(runReplica({ secret: NEW, oldSecret: 'not the secret of this fleet either' }), {
    name: 'Error',
    message: /Neither SANDBAR_SECRET nor SANDBAR_OLD_SECRET/,
  });
  for (let times = 0; times < 2; times++) await runReplica({ secret: NEW, oldSecret: config.secret });
  const { signer, trusted } = await readAuthorities(db, NEW);
  assert.deepEqual([signer.id, trusted], [before.signer.id, before.trusted]);
  assert.equal((await unlockAuthority(signer, NEW)).certificate, signer.certificate);
  await assert.rejects(unlockAuthority(signer, config.secret), { name: 'WrongSecret' });
});
