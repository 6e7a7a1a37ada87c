// Runs `npm start` as a child process. Its output goes to the console of the host, and it must exit with 0.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, globSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';

const CHECKOUT = path.join(import.meta.dirname, '..', '..', '..');
/** KVM on an emulated processor is slow: a cold boot takes 10 times as long as under plain emulation, or longer. */
const BOOT_PATIENCE_MS = 180_000;
/** The service itself runs about ten times slower than usual in the emulated host. */
const START_PATIENCE_MS = 300_000;
const SHOWN_LINES = '60';

export type ServiceProcess = {
  /** Ends the service as Ctrl-C does. Throws when its exit code is not 0. */
  stop(): Promise<void>;
};

/** Starts the service. Resolves when it is ready and has passed its self-check. Throws when it ends before that. */
export async function startService(home: string, cacheDir: string): Promise<ServiceProcess> {
  const child = spawn(process.execPath, [path.join(CHECKOUT, 'scripts', 'start.mjs')], {
    cwd: CHECKOUT,
    env: {
      ...process.env,
      SANDBAR_HOME: home,
      SANDBAR_CACHE: cacheDir,
      SANDBAR_START_PATIENCE_MS: String(START_PATIENCE_MS),
      SANDBAR_BOOT_PATIENCE_MS: String(BOOT_PATIENCE_MS),
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(child, 'close');
  const isReady = new Promise<true>((resolve) => {
    createInterface({ input: child.stdout }).on('line', (line) => {
      console.log(line);
      if (line.startsWith('Ready in ')) resolve(true);
    });
  });
  const reached = await Promise.race([isReady, ended]);
  if (reached !== true) throw new Error(`npm start ended with ${reached[1] ?? reached[0]}`);
  return {
    async stop() {
      child.kill('SIGINT');
      const [code, signal] = await ended;
      if (code !== 0) throw new Error(`npm start ended with ${signal ?? code} after Ctrl-C`);
    },
  };
}

/** Prints the last lines of all logs on the console, because the disk with the logs is discarded with the host. */
export function showLogs(home: string): void {
  const logs = globSync(['logs/*.log', 'run/**/*.log'], { cwd: home }).map((name) => path.join(home, name));
  const kept = logs.filter((file) => existsSync(file));
  if (kept.length > 0) spawnSync('tail', ['-v', '-n', SHOWN_LINES, ...kept], { stdio: 'inherit' });
  spawnSync('sh', ['-c', `dmesg -l emerg,alert,crit,err,warn | tail -n ${SHOWN_LINES}`], { stdio: 'inherit' });
}
