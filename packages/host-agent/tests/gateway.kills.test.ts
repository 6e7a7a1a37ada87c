// Tests that sessions and jobs survive kills of the guest gateway. The gateway runs without a jail, and as root also in
// its jail. The guest speaks frames, and in one case HTTP/2 like an older agent.
import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { JobReport } from '@sandbar/contract/host-api.ts';
import type { Gateway } from '../src/gateway/gateway.ts';
import type { Vm } from '../src/hypervisor/driver.ts';
import { JobTable } from '../src/jobs/job-table.ts';
import { GuestLink } from '../src/machines/guest-link.ts';
import { gatewayPid, startGateway } from './support/gateway.ts';
import { ScriptedGuest } from './support/scripted-guest.ts';

const TOKEN = 'ab'.repeat(32);
const LIMIT_BYTES = 64 * 1024 * 1024;
const KILLS = 5;
const LINES_PER_KILL = 20_000;

const RUNS = [
  { isRoot: true, protocol: 'frames' },
  { isRoot: false, protocol: 'frames' },
  { isRoot: false, protocol: 'http2' },
] as const;

for (const { isRoot, protocol } of RUNS.filter((run) => !run.isRoot || process.getuid?.() === 0)) {
  describe(`gateway that is killed, ${isRoot ? 'in its jail' : 'without a jail'}, with a guest of ${protocol}`, () => {
    const home = mkdtempSync(join(tmpdir(), 'sandbar-gateway-'));
    const otherHome = mkdtempSync(join(tmpdir(), 'sandbar-gateway-'));
    const ends: unknown[] = [];
    let gateway: Gateway;
    let other: Gateway;
    let guest: ScriptedGuest;
    before(async () => {
      guest = await ScriptedGuest.listen(join(home, 'guest.sock'), protocol);
      [gateway, other] = await Promise.all([startGateway(home, ends, isRoot), startGateway(otherHome, [], isRoot)]);
    });
    after(async () => {
      await Promise.all([gateway.close(), other.close()]);
      guest.close();
      for (const dir of [home, otherHome]) rmSync(dir, { recursive: true, force: true });
    });
    const connect = (by: Gateway, signal = AbortSignal.timeout(20_000)) =>
      by.connect({ dir: home, name: 'guest.sock', token: TOKEN }, signal, () => false);

    it('its sessions close, calls end with an error, and a new session opens in the next gateway', async () => {
      const session = await connect(gateway);
      guest.answer = (_, path) => path === '/freeze';
      const frozen = assert.rejects(session.freeze(1000), /the guest gateway is gone/);
      const otherPid = gatewayPid(other);
      process.kill(gatewayPid(gateway), 'SIGKILL');
      await Promise.all([session.closed, frozen]);
      await assert.rejects(session.listJobs(), /session with the guest is over/);
      guest.answer = () => false;
      const next = await connect(gateway);
      assert.deepEqual(await next.listJobs(), []);
      next.close();
      assert.equal(ends.length, 1);
      assert.equal(gatewayPid(other), otherPid, 'the gateway of another data directory goes on');
    });

    it('no byte of a job is lost or doubled while its gateway is killed again and again', async () => {
      const events = new EventEmitter<{ end: [JobReport] }>();
      const dir = join(home, 'jobs');
      const jobs = new JobTable({
        machineId: 'm',
        dir,
        outputLimitBytes: LIMIT_BYTES,
        keptOutput: { bytes: 2 ** 30, jobs: 1000 },
        room: { whenThereIsRoom: async () => {} },
        onEnd: (report) => events.emit('end', report),
        onDoubt: () => link.renew(),
        onError: () => {},
      });
      await jobs.load();
      const vm = { connectGuest: (signal: AbortSignal) => connect(gateway, signal) } as Vm;
      const link: GuestLink = new GuestLink(
        vm,
        (session) => jobs.resume(session),
        () => {},
      );
      await jobs.start('job', { command: 'print', timeout_sec: 60 }, await link.guest());
      const stored = async () => (await jobs.get('job')).offsets.stdout;
      const ended = once(events, 'end');
      let printed = '';
      for (let kill = 0; kill < KILLS; kill++) {
        const lines = Array.from({ length: LINES_PER_KILL }, (_, line) => `kill ${kill} line ${line}\n`).join('');
        const before = await stored();
        printed += lines;
        guest.print('job', lines);
        // Kill the gateway while only some of the lines are stored and the rest is under way.
        while ((await stored()) === before) await new Promise((resolve) => setImmediate(resolve));
        process.kill(gatewayPid(gateway), 'SIGKILL');
        // Before the next kill, wait until the next gateway reads the stream of the job.
        await link.guest();
        while (guest.requests.filter((request) => request.startsWith('GET /jobs/job/stream')).length <= kill)
          await new Promise((resolve) => setImmediate(resolve));
      }
      guest.end('job');
      const [report] = (await ended) as [JobReport];
      assert.deepEqual([report.status, report.stdout_bytes], ['exited', printed.length]);
      assert.ok(readFileSync(join(dir, 'job/stdout'), 'utf8') === printed, 'the stored output is what was printed');
      assert.equal(ends.length, 1 + KILLS);
      link.close();
    });
  });
}
