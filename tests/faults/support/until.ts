// Waiting for a condition, and files that may not be there.
import { readFileSync } from 'node:fs';

/** A check that fails counts as not yet. */
export async function until(what: string, isTrue: () => boolean | Promise<boolean>, withinMs = 40_000): Promise<void> {
  for (const deadline = Date.now() + withinMs; ; await new Promise((resolve) => setTimeout(resolve, 50))) {
    if (await (async () => isTrue())().catch(() => false)) return;
    if (Date.now() > deadline) throw new Error(`not in ${withinMs} ms: ${what}`);
  }
}

export function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
