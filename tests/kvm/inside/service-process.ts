// Runs `npm start` as a child process. Its output goes to the console of the host, and it must exit with 0.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, globSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { CHECKOUT, environment } from './slow-host.ts';

const SHOWN_LINES = '60';

export type ServiceProcess = {
  /** Ends the service as Ctrl-C does. Throws when its exit code is not 0. */
  stop(): Promise<void>;
};

/** Starts the service. Resolves when it is ready and has passed its self-check. Throws when it ends before that. */
export async function startService(home: string, env: NodeJS.ProcessEnv): Promise<ServiceProcess> {
  const child = spawn(process.execPath, [path.join(CHECKOUT, 'scripts', 'start.mjs')], {
    cwd: CHECKOUT,
    env: { ...environment(), ...env, SANDBAR_HOME: home },
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
