// Tests that a start which fails or is stopped also ends the build of the dashboard, with small programs in the places of
// Vite and of the host agent.
import assert from 'node:assert/strict';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, afterEach, beforeEach, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { freePorts } from '../../control-plane/tests/support/free-ports.ts';
import { readConfig, type ServiceConfig } from './config.ts';
import { type Progress, silentProgress } from './progress.ts';
import { startService } from './service.ts';
import { startTimeOf } from './supervise/process-identity.ts';

const root = mkdtempSync(path.join(tmpdir(), 'sandbar-start-'));
after(() => rmSync(root, { recursive: true }));

/** A build that nobody ends is killed after 120 seconds. */
const BEFORE_BUILD_TIMES_OUT = { timeout: 60_000 };

describe('the build of the dashboard', () => {
  let folder: string;
  let config: ServiceConfig;
  let pids: number[];
  afterEach(() => {
    for (const pid of pids.filter(startTimeOf)) process.kill(pid, 'SIGKILL');
  });

  const write = (name: string, content: string) => {
    const file = path.join(folder, 'checkout', name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, content);
    chmodSync(file, 0o755);
  };
  /** Resolves when Vite runs, with its process id. */
  const untilBuilding = async () => {
    const file = path.join(folder, 'vite.pid');
    while (!existsSync(file) || readFileSync(file, 'utf8') === '') await delay(10);
    const pid = Number(readFileSync(file, 'utf8'));
    pids.push(pid);
    return pid;
  };
  const assertEnded = () => {
    assert.equal(pids.length, 1);
    assert.deepEqual(pids.filter(startTimeOf), []);
    assert.deepEqual(
      readdirSync(path.join(folder, 'cache/dashboard')).filter((name) => !name.endsWith('.pid')),
      [],
    );
  };

  beforeEach(async () => {
    folder = mkdtempSync(path.join(root, 'case-'));
    pids = [];
    write('packages/dashboard/src/main.tsx', '');
    write('packages/contract/src/index.ts', '');
    write('package-lock.json', '{}');
    // Neither program ever ends by itself. Vite also ignores SIGTERM.
    write(
      'node_modules/vite/bin/vite.js',
      `process.on('SIGTERM', () => {});
      require('node:fs').writeFileSync('../../../vite.pid', String(process.pid));
      setInterval(() => {}, 1000);`,
    );
    write('node_modules/node/bin/node', '#!/bin/sh\nexec sleep 600\n');
    const [port, metricsPort] = await freePorts(2);
    const env = {
      SANDBAR_HOME: path.join(folder, 'home'),
      SANDBAR_LISTEN: `127.0.0.1:${port}`,
      SANDBAR_METRICS_LISTEN: `127.0.0.1:${metricsPort}`,
      SANDBAR_DATABASE_URL: 'postgres://127.0.0.1:1/x',
    };
    const cacheDir = path.join(folder, 'cache');
    config = { ...readConfig(env, 1000), checkout: path.join(folder, 'checkout'), cacheDir };
  });

  it('ends at a stop signal, and the start does not wait for it', BEFORE_BUILD_TIMES_OUT, async () => {
    const stop = new AbortController();
    const reason = new Error('stopped');
    const started = startService({ config, user: undefined, progress: silentProgress, signal: stop.signal });
    const ended = assert.rejects(started, reason);
    await untilBuilding();
    stop.abort(reason);
    await ended;
    assertEnded();
  });

  it('ends when another step of the start fails', BEFORE_BUILD_TIMES_OUT, async () => {
    const progress: Progress = {
      ...silentProgress,
      step: async (name, run) => {
        if (name !== 'database') return run(() => {});
        await untilBuilding();
        throw new Error('no database');
      },
    };
    const withoutUrl = { ...config, databaseUrl: undefined };
    await assert.rejects(startService({ config: withoutUrl, user: undefined, progress }), /no database/);
    assertEnded();
  });
});
