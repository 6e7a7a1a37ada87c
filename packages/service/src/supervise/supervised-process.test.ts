// Tests the supervision of real child processes: small node programs that behave as each test's name says.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, afterEach, describe, it } from 'node:test';
import { readPidFile } from './pid-file.ts';
import { isAlive, startTimeOf } from './process-identity.ts';
import { type Backoff, SupervisedProcess } from './supervised-process.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'sandbar-supervise-'));
after(() => rmSync(folder, { recursive: true }));
const QUICK: Backoff = { firstMs: 5, longestMs: 20, resetAfterMs: 30_000, attempts: 5, startWithinMs: 10_000 };
const READY = `process.send({ type: 'ready' }); process.on('disconnect', () => process.exit(0));`;

let running: SupervisedProcess[] = [];
afterEach(async () => {
  for (const supervised of running) await supervised.stop();
  running = [];
});

function supervise(
  program: string,
  options: { report?: (line: string) => void; backoff?: Partial<Backoff>; stopWithinMs?: number } = {},
) {
  const name = `child${Math.random().toString(36).slice(2)}`;
  const pidFile = path.join(folder, `${name}.pid`);
  const logFile = path.join(folder, `${name}.log`);
  const supervised = new SupervisedProcess(
    {
      name,
      pidFile,
      logFile,
      stopSignal: 'SIGTERM',
      stopWithinMs: options.stopWithinMs ?? 5_000,
      spawn: (log) => spawn(process.execPath, ['-e', program], { stdio: ['ignore', log, log, 'ipc'], detached: true }),
    },
    options.report ?? (() => {}),
    { ...QUICK, ...options.backoff },
  );
  running.push(supervised);
  return { supervised, pidFile, logFile };
}

async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 10_000;
  while (!condition()) {
    assert.ok(performance.now() < deadline, 'waited in vain');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

describe('supervised process', () => {
  it('is spared when the host is out of memory, and so is what it starts (RES-5)', async () => {
    const scoreOf = (pid: number | string) => Number(readFileSync(`/proc/${pid}/oom_score_adj`, 'utf8'));
    const own = scoreOf('self');
    // A child inherits its parent's score, so raise the parent's score to see that the supervisor changes the child's.
    writeFileSync('/proc/self/oom_score_adj', '500');
    try {
      const print = `console.log('score', require('node:fs').readFileSync('/proc/self/oom_score_adj', 'utf8'))`;
      const { supervised, logFile } = supervise(
        `${READY} require('node:child_process').spawn(process.execPath, ['-e', ${JSON.stringify(print)}], { stdio: 'inherit' });`,
      );
      await supervised.start();
      assert.ok(scoreOf(supervised.pid ?? 0) <= 0, String(scoreOf(supervised.pid ?? 0)));
      await until(() => /score \S+\n/.test(readFileSync(logFile, 'utf8')));
      assert.ok(Number(/score (\S+)/.exec(readFileSync(logFile, 'utf8'))?.[1]) <= 0);
    } finally {
      writeFileSync('/proc/self/oom_score_adj', String(own));
    }
  });

  it('is ready when it says so, has a pid file while it runs, and none after the end', async () => {
    const { supervised, pidFile } = supervise(READY);
    await supervised.start();
    const identity = readPidFile(pidFile);
    assert.ok(identity !== undefined && identity.pid === supervised.pid && isAlive(identity));
    await supervised.stop();
    assert.equal(isAlive(identity), false);
    assert.equal(existsSync(pidFile), false);
  });

  it('is started again when it is killed, with one line', async () => {
    const lines: string[] = [];
    const { supervised, pidFile } = supervise(READY, { report: (line) => lines.push(line) });
    await supervised.start();
    const first = supervised.pid ?? 0;
    process.kill(first, 'SIGKILL');
    await until(() => (readPidFile(pidFile)?.pid ?? first) !== first);
    assert.equal(lines.length, 1);
    assert.match(lines[0] ?? '', /ended \(SIGKILL\)/);
  });

  it('a first start that always fails is given up with the end of its log', async () => {
    const lines: string[] = [];
    const { supervised, logFile } = supervise(`console.error('the reason'); process.exit(3)`, {
      report: (line) => lines.push(line),
    });
    await assert.rejects(supervised.start(), /did not start in 5 attempts \(exit code 3\)[\s\S]*the reason/);
    assert.equal(readFileSync(logFile, 'utf8').match(/the reason/g)?.length, 5);
    assert.equal(lines.length, 4);
  });

  it('a first start that hangs is given up', async () => {
    const { supervised } = supervise('setInterval(() => {}, 1000)', { backoff: { startWithinMs: 300 } });
    await assert.rejects(supervised.start(), /did not start/);
    assert.equal(startTimeOf(supervised.pid ?? 0), undefined);
  });

  it('a process that ignores its stop signal is killed after the time it has', async () => {
    const { supervised, pidFile } = supervise(`process.on('SIGTERM', () => {}); ${READY} setInterval(() => {}, 1000)`, {
      stopWithinMs: 100,
    });
    await supervised.start();
    const identity = readPidFile(pidFile);
    await supervised.stop();
    assert.ok(identity !== undefined && !isAlive(identity));
  });

  it('stop during the pause before a restart starts nothing more', async () => {
    const { supervised, pidFile } = supervise(`${READY} setTimeout(() => process.exit(1), 50)`, {
      backoff: { firstMs: 60_000, longestMs: 60_000 },
    });
    await supervised.start();
    await until(() => !existsSync(pidFile));
    await supervised.stop();
    assert.equal(existsSync(pidFile), false);
  });
});
