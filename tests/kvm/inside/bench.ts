// Runs a few sections of `npm run bench` with two repetitions, to see that it works on KVM and says so. The verdict
// leaves the figures out, because the time that anything takes in an emulated host means nothing.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { CHECKOUT, environment, makeTemporaryFolder } from './slow-host.ts';
import type { Outcome } from './verdict.ts';

const SECTIONS = ['restore', 'create', 'exec', 'idle'];

export async function runBench(part: string): Promise<Outcome> {
  const env = environment();
  makeTemporaryFolder(env);
  const bench = path.join(CHECKOUT, 'bench', 'service.ts');
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', bench, ...SECTIONS, '--quick'], {
    cwd: CHECKOUT,
    env: { ...env, SANDBAR_ACCELERATOR: 'kvm' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const lines: string[] = [];
  createInterface({ input: child.stdout }).on('line', (line) => {
    console.log(line);
    lines.push(line);
  });
  const [code, signal] = await once(child, 'close');
  const saysKvm = lines.some((line) => line.startsWith('| what, on KVM |'));
  const saysNested = lines.includes('- Machines are on KVM, on a host that is a virtual machine itself');
  // The last line counts figures, missed bounds and problems. Missed bounds are expected here.
  const count = lines.map((line) => /^(\d+) figures; .*; (\d+) problems$/.exec(line)).find((match) => match !== null);
  const isGood = saysKvm && saysNested && Number(count?.[1]) > 0 && count?.[2] === '0';
  return {
    part,
    summary: `${count?.[1] ?? 0} figures of ${SECTIONS.join(', ')}`,
    skipped: [],
    ...(isGood ? {} : { failure: `the benchmark ended with ${signal ?? code}: ${lines.slice(-5).join(' ')}` }),
  };
}
