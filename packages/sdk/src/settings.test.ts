import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { resolveSettings } from './settings.ts';

const home = mkdtempSync(path.join(tmpdir(), 'sandbar-settings-'));
const file = path.join(home, 'credentials.json');
/** The file that `sandbar login` writes. */
const login = path.join(home, 'login.json');
after(() => rmSync(home, { recursive: true }));
/** An environment without variables. */
const env = {};
const resolve = (given: Parameters<typeof resolveSettings>[0], variables: Record<string, string> = {}) =>
  resolveSettings(given, {
    readVariable: (name) => variables[name],
    readCredentials: () =>
      [login, file].map((path) => ({ path, text: existsSync(path) ? readFileSync(path, 'utf8') : undefined })),
  });

describe('settings', () => {
  it('the error says what to do when there is no address, no key and no file', () => {
    assert.throws(() => resolve({}, env), /npm start/);
  });

  it('given values take precedence over the environment, and the environment over the file', () => {
    writeFileSync(file, '{"base_url":"http://f:1","api_key":"kf"}');
    const variables = { ...env, SANDBAR_BASE_URL: 'http://e:1/', SANDBAR_API_KEY: 'ke' };
    assert.deepEqual(resolve({}, env), { baseUrl: 'http://f:1', apiKey: 'kf' });
    assert.deepEqual(resolve({}, variables), { baseUrl: 'http://e:1', apiKey: 'ke' });
    assert.deepEqual(resolve({ baseUrl: 'http://g:1', apiKey: 'kg' }, variables), {
      baseUrl: 'http://g:1',
      apiKey: 'kg',
    });
  });

  it('the file of a login takes precedence over the file of the service on this computer', () => {
    writeFileSync(login, '{"base_url":"http://l:1/","api_key":"kl"}');
    assert.deepEqual(resolve({}), { baseUrl: 'http://l:1', apiKey: 'kl' });
    assert.deepEqual(resolve({ baseUrl: 'http://f:1' }), { baseUrl: 'http://f:1', apiKey: 'kf' });
    rmSync(login);
  });

  it('the key of the file is never used for another address', () => {
    assert.throws(() => resolve({ baseUrl: 'http://elsewhere:1' }, env), /SANDBAR_API_KEY/);
  });

  it('an empty key or address is an error, even when the file has one', () => {
    writeFileSync(file, '{"base_url":"http://f:1","api_key":"kf"}');
    for (const empty of ['', '  ']) {
      assert.throws(() => resolve({}, { ...env, SANDBAR_API_KEY: empty }), /SANDBAR_API_KEY is set, but empty/);
      assert.throws(() => resolve({}, { ...env, SANDBAR_BASE_URL: empty }), /SANDBAR_BASE_URL is set, but empty/);
      assert.throws(() => resolve({ apiKey: empty }, env), /apiKey is set, but empty/);
      assert.throws(() => resolve({ baseUrl: empty }, env), /baseUrl is set, but empty/);
    }
  });

  it('a key with a line break is an error that does not show the key, and spaces around a key are ignored', () => {
    for (const wrong of ['sbr_secret\nx', 'sbr_secret x', 'sbr_secr\u00e9t']) {
      assert.throws(
        () => resolve({}, { SANDBAR_BASE_URL: 'http://e:1', SANDBAR_API_KEY: wrong }),
        (error: Error) => /SANDBAR_API_KEY has a line break/.test(error.message) && !error.message.includes('secr'),
      );
    }
    assert.equal(resolve({ baseUrl: 'http://e:1', apiKey: 'sbr_key\n' }).apiKey, 'sbr_key');
  });

  it('a malformed address is an error', () => {
    for (const wrong of ['localhost:7070', '127.0.0.1', 'file:///x']) {
      assert.throws(() => resolve({}, { ...env, SANDBAR_BASE_URL: wrong }), /SANDBAR_BASE_URL must be/);
    }
  });

  it('a damaged file is named in the error', () => {
    writeFileSync(file, '{"base_url":');
    assert.throws(
      () => resolve({}, env),
      (error: Error) => error.message.includes(file),
    );
  });
});
