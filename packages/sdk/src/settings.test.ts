import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { resolveSettings } from './settings.ts';

const home = mkdtempSync(path.join(tmpdir(), 'sandbar-settings-'));
const file = path.join(home, 'credentials.json');
after(() => rmSync(home, { recursive: true }));
const env = { SANDBAR_HOME: home };

describe('settings', () => {
  it('without address, key and file the error says what to do', () => {
    assert.throws(() => resolveSettings({}, env), /npm start/);
  });

  it('given values win over the environment, which wins over the file', () => {
    writeFileSync(file, '{"base_url":"http://f:1","api_key":"kf"}');
    const variables = { ...env, SANDBAR_BASE_URL: 'http://e:1/', SANDBAR_API_KEY: 'ke' };
    assert.deepEqual(resolveSettings({}, env), { baseUrl: 'http://f:1', apiKey: 'kf' });
    assert.deepEqual(resolveSettings({}, variables), { baseUrl: 'http://e:1', apiKey: 'ke' });
    assert.deepEqual(resolveSettings({ baseUrl: 'http://g:1', apiKey: 'kg' }, variables), {
      baseUrl: 'http://g:1',
      apiKey: 'kg',
    });
  });

  it('the key of the file is never used for another address', () => {
    assert.throws(() => resolveSettings({ baseUrl: 'http://elsewhere:1' }, env), /SANDBAR_API_KEY/);
  });

  it('an empty key or address is an error, even when the file has one', () => {
    writeFileSync(file, '{"base_url":"http://f:1","api_key":"kf"}');
    for (const empty of ['', '  ']) {
      assert.throws(() => resolveSettings({}, { ...env, SANDBAR_API_KEY: empty }), /SANDBAR_API_KEY is set, but empty/);
      assert.throws(
        () => resolveSettings({}, { ...env, SANDBAR_BASE_URL: empty }),
        /SANDBAR_BASE_URL is set, but empty/,
      );
      assert.throws(() => resolveSettings({ apiKey: empty }, env), /apiKey is set, but empty/);
      assert.throws(() => resolveSettings({ baseUrl: empty }, env), /baseUrl is set, but empty/);
    }
  });

  it('a malformed address is an error', () => {
    for (const wrong of ['localhost:7070', '127.0.0.1', 'file:///x']) {
      assert.throws(() => resolveSettings({}, { ...env, SANDBAR_BASE_URL: wrong }), /SANDBAR_BASE_URL must be/);
    }
  });

  it('a damaged file is named in the error', () => {
    writeFileSync(file, '{"base_url":');
    assert.throws(
      () => resolveSettings({}, env),
      (error: Error) => error.message.includes(file),
    );
  });
});
