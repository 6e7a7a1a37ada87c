// Tests what the CLI does only on a terminal: it asks before it deletes data, and colours states. `script` gives it a
// pseudo-terminal.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { describe, it } from 'node:test';
import { api, CLI, environment, MACHINE, useStandIn, VOLUME } from './testing/api-stand-in.ts';

useStandIn();

/** Runs the CLI in a terminal and types `answer` when it asks. Terminals end lines with \r\n. */
async function inTerminal(args: string, answer = '', env: Record<string, string> = {}) {
  const inherited = environment();
  // Remove the variables that turn colours on or off, which CI systems set, for example.
  for (const name of ['NO_COLOR', 'NODE_DISABLE_COLORS', 'FORCE_COLOR', 'CI']) delete inherited[name];
  const line = `'${process.execPath}' '${CLI}' ${args}`;
  const child = spawn('script', ['-qefc', line, '/dev/null'], { env: { ...inherited, TERM: 'xterm', ...env } });
  let text = '';
  let isAnswered = false;
  child.stdout.on('data', (chunk) => {
    text += chunk;
    if (isAnswered || !text.includes('[y/N] ')) return;
    isAnswered = true;
    child.stdin.write(answer);
  });
  const [code] = await once(child, 'close');
  return { code, text };
}

describe('on a terminal', () => {
  it('a command that deletes data asks first, and deletes only after yes', async () => {
    for (const [answer, code] of [
      ['n\r', 1],
      ['\r', 1],
      ['\x04', 1],
      ['\x03', 130],
    ] as const) {
      const result = await inTerminal(`volume rm ${VOLUME}`, answer);
      assert.equal(result.code, code, JSON.stringify(answer));
      assert.deepEqual(api.calls, [], JSON.stringify(answer));
    }
    const { code, text } = await inTerminal(`volume rm ${VOLUME}`, 'y\r');
    assert.equal(code, 0);
    assert.match(text, /Delete \S+ with all data\? \[y\/N\] [\s\S]*: deleted/);
    assert.deepEqual(api.calls, [`DELETE /v1/volumes/${VOLUME}`]);
  });

  it('states are in colour, unless NO_COLOR is set', async () => {
    assert.ok((await inTerminal('ls')).text.includes('\x1b[32mrunning'));
    const plain = await inTerminal('ls', '', { NO_COLOR: '1' });
    assert.ok(plain.text.includes(MACHINE));
    assert.ok(!plain.text.includes('\x1b[3'), plain.text);
  });
});
