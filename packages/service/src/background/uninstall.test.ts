import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { Problem } from '../problem.ts';
import { assertOurs } from './uninstall.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'sandbar-uninstall-'));
after(() => rmSync(folder, { recursive: true, force: true }));

/** A folder with these files. */
function folderWith(files: Record<string, string>): string {
  const home = mkdtempSync(path.join(folder, 'home-'));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(home, name)), { recursive: true });
    writeFileSync(path.join(home, name), text);
  }
  return home;
}

describe('a data directory', () => {
  it('has the host id, or the secret with the credentials or the database', () => {
    assertOurs(folderWith({ 'host.json': '{"hostId":"x"}' }));
    assertOurs(folderWith({ secret: 'x', 'credentials.json': '{}' }));
    assertOurs(folderWith({ secret: 'x', 'postgres/PG_VERSION': '17' }));
  });

  it('is not just any folder with a secret, credentials, or a host.json of something else', () => {
    const others = [{}, { secret: 'x' }, { 'credentials.json': '{}' }, { secret: 'x', 'host.json': '{"host":"x"}' }];
    for (const files of others) {
      assert.throws(() => assertOurs(folderWith(files)), Problem, JSON.stringify(files));
    }
    assert.throws(() => assertOurs(path.join(folder, 'missing')), Problem);
  });
});
