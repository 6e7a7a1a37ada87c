// Tests how much script a browser loads before the list of machines is complete.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createAccount } from '../e2e/support/accounts.ts';
import { NARROW, WIDE, withPage } from './support/browser.ts';

const SCRIPT_KB_MAX = 200;

describe('the first load', () => {
  it('has at most 200 kB of gzipped script, without the terminal and the charts', async () => {
    const account = await createAccount();
    for (const size of [WIDE, NARROW]) {
      await withPage({ account, size }, async (page) => {
        await page.goto('/machines');
        await page.getByRole('heading', { name: 'Machines' }).waitFor();
        await page.waitForLoadState('networkidle');
        const names = await page.evaluate(() =>
          performance
            .getEntriesByType('resource')
            .map(({ name }) => name)
            .filter((name) => name.endsWith('.js')),
        );
        assert.ok(names.length > 0);
        for (const name of names) assert.doesNotMatch(name, /terminal|chart/);
        const scripts = await Promise.all(names.map(async (name) => ({ name, bytes: await gzippedSize(name) })));
        const kb = scripts.reduce((sum, { bytes }) => sum + bytes, 0) / 1000;
        const list = scripts.map(({ name, bytes }) => `${bytes} ${name}`).join('\n');
        assert.ok(kb <= SCRIPT_KB_MAX, `${kb.toFixed(1)} kB at ${size.width} px\n${list}`);
      });
    }
  });
});

/** The bytes of a script as the service sends it to a client that knows gzip only. Browsers get brotli, which is smaller. */
async function gzippedSize(url: string): Promise<number> {
  const { headers } = await fetch(url, { method: 'HEAD', headers: { 'accept-encoding': 'gzip' } });
  assert.equal(headers.get('content-encoding'), 'gzip', url);
  return Number(headers.get('content-length'));
}
