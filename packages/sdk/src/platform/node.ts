// The platform of Node, Deno and Bun.
import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { defaultHome, homePaths } from '@sandbar/contract/home.ts';
import { ConfigurationError } from '../errors.ts';
import { openSocket } from './node-socket.ts';
import type { CredentialsFile, Platform } from './platform.ts';
import { toDuplex } from './port-duplex.ts';
import { sendStream } from './send-stream.ts';

export const platform: Platform = {
  runtime: runtimeOf(process.versions),
  readVariable: (name) => process.env[name],
  readCredentials: () =>
    [loginFile(process.env), homePaths(defaultHome(process.env, process.getuid?.() === 0)).credentials].map(readFile),
  sendStream,
  openSocket,
  toDuplex,
};

/** The file that `sandbar login` writes: in `$XDG_CONFIG_HOME/sandbar`, by default `~/.config/sandbar`. */
export function loginFile(env: NodeJS.ProcessEnv): string {
  return `${env.XDG_CONFIG_HOME || join(homedir(), '.config')}/sandbar/credentials.json`;
}

function readFile(path: string): CredentialsFile {
  try {
    return { path, text: readFileSync(path, 'utf8') };
  } catch (error) {
    if (error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ENOTDIR')) {
      return { path, text: undefined };
    }
    throw new ConfigurationError(`cannot read ${path}: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function runtimeOf({ node, deno, bun }: Readonly<Record<string, string | undefined>>): string {
  if (bun !== undefined) return `bun/${bun}`;
  return deno === undefined ? `node/${node}` : `deno/${deno}`;
}
