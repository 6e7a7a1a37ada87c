// Times the start of a gVisor sandbox that prints one word (`runsc do`). The other figures are given as multiples of
// this time, so that results of different computers, and of one computer under different load, can be compared.
import { spawn, spawnSync } from 'node:child_process';

const ARGS = ['--network=none', '--ignore-cgroups', 'do', '/bin/echo', 'hi'];

export const NO_GVISOR =
  'runsc (gVisor) is missing, so there are no ratios to it: install it as root with apt-get install runsc';

/** The first line of `runsc --version`, or undefined when runsc is not installed. */
export function gvisorVersion(): string | undefined {
  const { status, stdout } = spawnSync('runsc', ['--version'], { encoding: 'utf8' });
  return status === 0 ? stdout.split('\n')[0] : undefined;
}

/** Runs the sandbox once. Returns the milliseconds from the start of runsc to its end. Throws on any other output. */
export async function timeGvisor(): Promise<number> {
  const began = performance.now();
  const child = spawn('runsc', ARGS, { stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  let errors = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors += text;
  });
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  });
  const took = performance.now() - began;
  if (code !== 0 || output !== 'hi\n') throw new Error(`runsc ended with ${code}: ${errors.trim() || output}`);
  return took;
}
