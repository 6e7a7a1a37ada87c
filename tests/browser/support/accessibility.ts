// Runs axe in a page.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { AxeResults } from 'axe-core';
import type { Page } from 'playwright-core';

const SOURCE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/**
 * Fails when axe finds a serious or critical violation. axe comes into the page through the browser's debugger, because
 * the Content-Security-Policy would stop a script element.
 */
export async function assertAccessible(page: Page): Promise<void> {
  await page.evaluate(SOURCE);
  const results = await page.evaluate(() =>
    (globalThis as unknown as { axe: { run(): Promise<AxeResults> } }).axe.run(),
  );
  const serious = results.violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
  const found = serious.flatMap(({ id, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id}: ${html}\n${failureSummary}`),
  );
  assert.deepEqual(found, [], `serious violations at ${page.url()}`);
}
