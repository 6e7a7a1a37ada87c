import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, it } from 'node:test';
import { createLog } from './log.ts';

describe('the log', () => {
  function logged(fields: object): Record<string, unknown> {
    let line = '';
    const destination = {
      write(written: string) {
        line += written;
      },
    };
    createLog({ process: 'host-agent', level: 'info', destination }).warn(fields, 'a message');
    return JSON.parse(line);
  }

  it('names the process', () => {
    const { process, msg, level } = logged({});
    assert.deepEqual([process, msg, level], ['host-agent', 'a message', 40]);
  });

  it('has of an error its name, code, message, stack and cause, and nothing else', () => {
    const cause = Object.assign(new TypeError('the cause'), { detail: 'a row' });
    const err = Object.assign(new Error('it failed', { cause }), { code: 'ENOENT', detail: 'a row', stderr: 'output' });
    const { err: written } = logged({ err }) as { err: { cause: object } };
    assert.deepEqual(written, {
      type: 'Error',
      code: 'ENOENT',
      message: 'it failed',
      stack: err.stack,
      cause: { type: 'TypeError', message: 'the cause', stack: cause.stack },
    });
  });

  it('has no request object and no key', () => {
    const { req, api_key, authorization } = logged({ req: { url: '/x' }, api_key: 'k', authorization: 'k' });
    assert.deepEqual([req, api_key, authorization], [undefined, '[Redacted]', '[Redacted]']);
  });

  it('does not end the process when its disk is full', async () => {
    const full = openSync('/dev/full', 'w');
    const program = `
      import { createLog } from '${path.join(import.meta.dirname, 'log.ts')}';
      const log = createLog({ process: 'x', level: 'info' });
      log.info('a line');
      log.fatal('x'.repeat(100_000));
      log.info('another line');
      console.error('alive');`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: ['ignore', full, 'pipe'] });
    closeSync(full);
    assert(child.stderr);
    const [said, [code]] = await Promise.all([text(child.stderr), once(child, 'close')]);
    assert.deepEqual([said, code], ['alive\n', 0]);
  });
});
