// Asks a host agent to end while it starts. It must end in order then, because nothing else ends what it started: QEMU
// processes outlive the agent on purpose.
import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { findQemuBelow } from '../src/hypervisor/process.ts';
import { networkNames } from '../src/network/names.ts';
import { AgentProcess } from './support/agent-process.ts';

/** How often a test looks whether its moment has come, in milliseconds. */
const POLL_MS = 5;

describe('an agent that is asked to end while it starts', () => {
  const moments: [string, (agent: AgentProcess) => boolean][] = [
    ['its accelerator is known', (agent) => agent.log().includes('accelerator chosen')],
    ['it has a network', ({ home }) => existsSync(`/sys/class/net/${networkNames(home).bridge}`)],
    ['it makes its first template', ({ paths }) => hasEntries(paths.runTemplates)],
  ];
  const ways: [string, (child: ChildProcess) => void][] = [
    ['by SIGTERM', (child) => child.kill('SIGTERM')],
    ['by the end of its supervisor', (child) => child.disconnect()],
  ];
  for (const [[name, hasCome], [way, ask]] of moments.flatMap((moment) => ways.map((one) => [moment, one] as const))) {
    it(`${way} leaves no VM and no network when ${name}`, async () => {
      const agent = new AgentProcess({ SANDBAR_TEMPLATES: '1', SANDBAR_POOL_SIZE: '1' });
      const { home, paths } = agent;
      const child = agent.launch();
      const ended = once(child, 'exit');
      while (!hasCome(agent) && child.exitCode === null) await delay(POLL_MS);
      ask(child);
      assert.deepEqual(await ended, [0, null], agent.log());
      assert.deepEqual(findQemuBelow(paths.run), []);
      assert.equal(existsSync(`/sys/class/net/${networkNames(home).bridge}`), false);
      rmSync(home, { recursive: true });
    });
  }
});

function hasEntries(dir: string): boolean {
  return existsSync(dir) && readdirSync(dir).length > 0;
}
