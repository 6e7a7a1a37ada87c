// Checks the imports of the agent: no program that runs as root may load code that parses what guests send.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { describe, it } from 'node:test';

const SOURCES = join(import.meta.dirname, '../src');
/** PARSERS parse bytes from guests. GATEWAY_ONLY is the program of the gateway. */
const PARSERS = [
  'channel.ts',
  'flood-watch.ts',
  'frame-calls.ts',
  'frame-codec.ts',
  'frame-stream.ts',
  'frame-transport.ts',
  'frames.ts',
  'growing-buffer.ts',
  'guest-client.ts',
  'guest-job.ts',
  'http2-transport.ts',
  'unread-output.ts',
].map((file) => `guest/${file}`);
const GATEWAY_ONLY = [
  'gateway/main.ts',
  'gateway/open-guest.ts',
  'gateway/sessions.ts',
  'gateway/credit.ts',
  'gateway/turn-writer.ts',
];

/** NAME_PARSERS parse DNS messages from machines. RELAY_ONLY is the program of the name relay. */
const NAME_PARSERS = ['network/dns/message.ts', 'network/dns/frames.ts'];
const RELAY_ONLY = ['main.ts', 'relay.ts', 'upstream.ts', 'rate.ts', 'shares.ts'].map((file) => `network/dns/${file}`);

/** Returns the files of the agent that `main` loads, directly or not, and the other modules that they load. */
function loadedBy(main: string): { files: Set<string>; modules: Set<string> } {
  const [files, modules] = [new Set<string>(), new Set<string>()];
  const visit = (path: string) => {
    const name = relative(SOURCES, path);
    if (files.has(name)) return;
    files.add(name);
    for (const wanted of importsOf(readFileSync(path, 'utf8'))) {
      const file = wanted.startsWith('.')
        ? resolve(dirname(path), wanted)
        : wanted.replace(/^@sandbar\/([^/]+)\//, (_, name) => join(SOURCES, `../../${name}/src/`));
      if (file.startsWith('/')) {
        assert.ok(existsSync(file), `${name} imports ${wanted}`);
        visit(file);
      } else modules.add(wanted);
    }
  };
  visit(join(SOURCES, main));
  return { files, modules };
}

/** The modules that a file imports at run time. */
function importsOf(source: string): string[] {
  const statements = source.matchAll(/^(?:import|export)\s+(?!type\s)[^;]*?from\s+'([^']+)'|^import\s+'([^']+)'/gm);
  const dynamic = source.matchAll(/\bimport\('([^']+)'\)/g);
  return [...statements, ...dynamic].map(([, one, other]) => one ?? other ?? assert.fail());
}

describe('imports of the agent', () => {
  it('the agent loads no parser of what guests send, neither frames nor names, and no HTTP/2 (RES-6)', () => {
    const { files, modules } = loadedBy('main.ts');
    assert.ok(files.has('gateway/gateway.ts') && files.has('machines/lifecycle.ts') && files.size > 100);
    assert.deepEqual(
      [...PARSERS, ...GATEWAY_ONLY, ...NAME_PARSERS, ...RELAY_ONLY].filter((file) => files.has(file)),
      [],
    );
    assert.equal(modules.has('node:http2'), false);
  });

  it('the gateway loads them, and none of the agent but the protocol between the two', () => {
    const { files, modules } = loadedBy('gateway/main.ts');
    assert.deepEqual(
      PARSERS.filter((file) => !files.has(file)),
      [],
    );
    assert.ok(modules.has('node:http2'));
    assert.deepEqual(
      [...files].filter((file) => !/^(guest|gateway)\/|^\.\.\/\.\.\/contract\//.test(file)),
      [],
    );
    assert.deepEqual(
      [...modules].filter((name) => !name.startsWith('node:')),
      [],
    );
  });

  it('the name relay loads them, and no other file of the agent', () => {
    const { files, modules } = loadedBy('network/dns/main.ts');
    assert.deepEqual(
      NAME_PARSERS.filter((file) => !files.has(file)),
      [],
    );
    assert.deepEqual(
      [...files].filter((file) => !file.startsWith('network/dns/')),
      [],
    );
    assert.deepEqual(
      [...modules].filter((name) => !name.startsWith('node:')),
      [],
    );
  });
});
