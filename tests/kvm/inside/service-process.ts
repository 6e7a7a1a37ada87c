// `npm start` as a child process: its output goes to the console of the host, its end must be a clean one.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, globSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';

const CHECKOUT = path.join(import.meta.dirname, '..', '..', '..');
/** Emulated virtualisation: a cold boot takes 10 times as long as one under plain emulation, more on a busy computer. */
const BOOT_PATIENCE_MS = 180_000;
/** The service itself runs at a tenth of its pace. */
const START_PATIENCE_MS = 300_000;
const SHOWN_LINES = '60';

export type ServiceProcess = {
  /** Ends it as Ctrl-C does. Throws when that is not a clean end. */
  stop(): Promise<void>;
};

/** Resolves when it is ready, its self-check included. Throws when it ends before. */
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

/** The ends of all logs, on the console: the disk they are on does not outlive the host. */
export function showLogs(home: string): void {
  const logs = globSync(['logs/*.log', 'run/**/*.log'], { cwd: home }).map((name) => path.join(home, name));
  const kept = logs.filter((file) => existsSync(file));
  if (kept.length > 0) spawnSync('tail', ['-v', '-n', SHOWN_LINES, ...kept], { stdio: 'inherit' });
  spawnSync('sh', ['-c', `dmesg -l emerg,alert,crit,err,warn | tail -n ${SHOWN_LINES}`], { stdio: 'inherit' });
}
