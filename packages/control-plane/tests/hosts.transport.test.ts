// What is known of a request whose host died: only one that nobody ever read is certain to have done nothing.
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { createHostClient, HostUnavailable } from '../src/hosts/client.ts';

/** An agent that dies of what it is asked, once it has read it; nobody listens from then on. */
const MORTAL = `
const server = require('node:http').createServer((request) => {
  request.resume();
  request.on('end', () => {
    server.close();
    process.kill(process.pid, 'SIGKILL');
  });
});
server.listen(process.argv[1], () => console.log('listening'));
`;

describe('a host agent that dies', () => {
  let dir: string;
  let socketPath: string;
  let agent: ChildProcess;
  before(async () => {
    dir = mkdtempSync(join(tmpdir(), 'sandbar-transport-'));
    socketPath = join(dir, 'agent.sock');
    agent = spawn(process.execPath, ['-e', MORTAL, socketPath], { stdio: ['ignore', 'pipe', 'inherit'] });
    if (agent.stdout) await once(agent.stdout, 'data');
  });
  after(() => {
    agent.kill('SIGKILL');
    rmSync(dir, { recursive: true, force: true });
  });

  it('of a request that it had read may have acted, and of a later one certainly not (CTL-3)', async () => {
    const client = createHostClient(socketPath);
    const ask = () => client.deleteVolume('0195a1b2-c3d4-7890-abcd-ef0123456789');
    const fate = (mayHaveActed: boolean) => (error: unknown) =>
      error instanceof HostUnavailable && error.mayHaveActed === mayHaveActed;
    await assert.rejects(ask(), fate(true));
    await assert.rejects(ask(), fate(false));
    client.close();
  });
});
