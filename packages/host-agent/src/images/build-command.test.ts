import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { describeFailure, runBuildCommand } from './build-command.ts';

describe('command', () => {
  test('reads its input and returns its output', async () => {
    assert.equal((await runBuildCommand({ command: 'cat', args: [], input: 'hello' })).toString(), 'hello');
  });

  test('the error for a missing tool names its package', async () => {
    const env = { PATH: '/nonexistent' };
    await assert.rejects(runBuildCommand({ command: 'mmdebstrap', args: [], env }), {
      name: 'ImageError',
      message: /needs mmdebstrap, .* apt-get install mmdebstrap$/,
    });
  });

  test('a failure shows the command, its exit and its last output', async () => {
    const run = runBuildCommand({ command: 'sh', args: ['-c', 'echo one >&2; echo two >&2; exit 3'] });
    await assert.rejects(run, /sh -c .*\(exit code 3\):\n {2}one\n {2}two/s);
  });

  test('is killed when its output has no end', async () => {
    const endless = runBuildCommand({ command: 'cat', args: ['/dev/zero'] });
    await assert.rejects(endless, { name: 'ImageError', message: /cat .*\(SIGKILL\):\n +more than 67108864 bytes/ });
  });

  test('lines of standard error are passed on one by one', async () => {
    const lines: string[] = [];
    await runBuildCommand({
      command: 'sh',
      args: ['-c', 'printf "a\\nb" >&2; printf "c\\n" >&2'],
      onLine: (line) => lines.push(line),
    });
    assert.deepEqual(lines, ['a', 'bc']);
  });
});

describe('the cause of a failure', () => {
  const meanings: [string, RegExp][] = [
    [
      "E: Failed to fetch http://deb.debian.org/  Could not resolve 'deb.debian.org'",
      /^The network does not answer.*SANDBAR_DEBIAN_MIRROR/,
    ],
    ['tar: write error: No space left on device', /^The disk is full/],
    ['E: The repository is not signed.', /^The package archive is not signed/],
    ['setpriv: failed to execute mmdebstrap: No such file or directory', /^The image build needs mmdebstrap.* apt-get/],
    ['FATA[0000] pinging container registry h:1: dial tcp: connection refused', /^The registry does not answer/],
    ['pinging container registry h:1: server gave HTTP response to HTTPS client', /--insecure/],
    ['reading manifest 1 in h:1/n: manifest unknown: manifest unknown', /^The registry has no such image/],
    ['E: something else', /^The image could not be made: /],
  ];
  for (const [output, meaning] of meanings) {
    test(output, () => assert.match(describeFailure('tool', [], 'exit code 1', output), meaning));
  }
});
