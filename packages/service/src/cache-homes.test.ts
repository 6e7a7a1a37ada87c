import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, beforeEach, describe, it } from 'node:test';
import { forgetHome, HOMES_FOLDER, reasonToKeep, recordHome } from './cache-homes.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'sandbar-cache-homes-'));
after(() => rmSync(folder, { recursive: true, force: true }));

describe('the records of a cache', () => {
  const cache = path.join(folder, 'cache');
  const [a, b] = [path.join(folder, 'a'), path.join(folder, 'b')];

  beforeEach(() => {
    rmSync(folder, { recursive: true, force: true });
    for (const home of [a, b]) {
      mkdirSync(home, { recursive: true });
      writeFileSync(path.join(home, 'host.json'), '{"hostId":"x"}');
    }
    mkdirSync(cache);
  });

  it('keep it for another data directory, also while that is stopped, until it is gone', async () => {
    await recordHome(cache, a);
    mkdirSync(path.join(cache, 'images'));
    await recordHome(cache, b);
    assert.equal(reasonToKeep(cache, a), `the service of ${b} uses it`);
    rmSync(b, { recursive: true });
    assert.equal(reasonToKeep(cache, a), undefined);
  });

  it('count neither a data directory that was forgotten nor one that has no disks', async () => {
    await recordHome(cache, a);
    await recordHome(cache, b);
    await forgetHome(cache, b);
    assert.equal(reasonToKeep(cache, a), undefined);
    await recordHome(cache, b);
    rmSync(path.join(b, 'host.json'));
    assert.equal(reasonToKeep(cache, a), undefined);
    mkdirSync(path.join(b, 'machines'));
    assert.equal(reasonToKeep(cache, a), `the service of ${b} uses it`);
  });

  it('are not complete when the cache had images before the first record', async () => {
    mkdirSync(path.join(cache, 'images'));
    assert.match(reasonToKeep(cache, a) ?? '', /no record of .*\/a.* rm -rf '.*\/cache'$/);
    await recordHome(cache, a);
    await recordHome(cache, a);
    assert.match(reasonToKeep(cache, a) ?? '', /it had images before.* rm -rf '.*\/cache'$/);
  });

  it('keep it when a record cannot be checked', async () => {
    await recordHome(cache, a);
    mkdirSync(path.join(cache, HOMES_FOLDER, '0'.repeat(64)));
    assert.match(reasonToKeep(cache, a) ?? '', /the record .*\/000* cannot be checked/);
  });
});
