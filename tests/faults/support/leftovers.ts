// Finds what machines and services leave on their host: folders, taps, bridges and nftables tables.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import type { Machine } from '@sandbar/contract/machine.ts';
import { networkNames } from '@sandbar/host-agent/network/names.ts';
import type { Api } from './api.ts';
import { until } from './until.ts';

/** Lists the folders and taps of all machines of a service, as one text to compare. */
export function remains(home: string): string {
  const folders = ['machines', 'run/machines'].map((name) => readdirSync(path.join(home, name)).sort().join());
  return [...folders, tapsOf(home)].join(' / ');
}

export async function assertNothingLeft(api: Api, home: string, before: string): Promise<void> {
  const ids = before.split(' / ')[0]?.split(',').filter(Boolean) ?? [];
  let now = '';
  await until('nothing is left', async () => {
    const { body } = await api<{ machines: Machine[] }>('GET', '/v1/machines');
    now = remains(home);
    return now === before && body.machines.length === ids.length;
  }).catch((error: unknown) => assert.fail(`${error}: ${now} instead of ${before}`));
}

function tapsOf(home: string): string {
  const ports = `/sys/class/net/${networkNames(home).bridge}/brif`;
  return existsSync(ports) ? readdirSync(ports).sort().join() : '';
}

/** Lists the existing bridges and nftables tables of services on these data directories. */
export function networksOf(homes: readonly string[]): string[] {
  const tables =
    process.getuid?.() === 0 ? execFileSync('nft', ['list', 'tables'], { encoding: 'utf8' }).split('\n') : [];
  return homes.flatMap((home) => {
    const { bridge, table } = networkNames(home);
    const bridges = existsSync(`/sys/class/net/${bridge}`) ? [bridge] : [];
    return [...bridges, ...tables.filter((line) => line.endsWith(` ${table}`))];
  });
}
