// Waits for conditions, and reads files that may not exist.
import { readFileSync } from 'node:fs';

/** Waits until `isTrue` returns or resolves to true. A call that throws counts as false. Throws after `withinMs`. */
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
