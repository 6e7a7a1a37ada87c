// Runs the service without root on a host that was not prepared for it.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import { apiOf, endOf, SMALL, startJob } from './support/api.ts';
import { AS_NOBODY, homeOf, IS_ROOT, start } from './support/service-process.ts';

describe('without root', () => {
  it('machines work with user networking, and Ctrl-C leaves nothing behind', { skip: !IS_ROOT }, async () => {
    const home = homeOf('rootless');
    mkdirSync(home, { mode: 0o700 });
    execFileSync('chown', ['65534:65534', home]);
    const service = start('rootless', { HOME: home }, AS_NOBODY);
    await service.ready;
    const api = apiOf(home);
    const machine = (await api<Machine>('POST', '/v1/machines', SMALL)).body;
    assert.equal(await endOf(api, machine.id, await startJob(api, machine.id, 'ip -4 address | grep -F "$IP"')), 0);
    service.child.kill('SIGINT');
    assert.equal((await service.ended).code, 0);
  });
});
