// The file in which `sandbar login` keeps the address of a service and an API key. The SDKs read it.
import { chmodSync, mkdirSync, rmSync } from 'node:fs';
import { open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { loginFile } from '@sandbar/sdk/platform/node.ts';

export type Login = { base_url: string; api_key: string };

export function loginPath(): string {
  return loginFile(process.env);
}

/** Replaces the file. Only its owner can read it. After a crash it is whole: either the old or the new file. */
export async function writeLogin(login: Login): Promise<void> {
  const file = loginPath();
  const folder = dirname(file);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  chmodSync(folder, 0o700);
  const temporary = `${file}.${process.pid}`;
  rmSync(temporary, { force: true });
  try {
    const handle = await open(temporary, 'wx', 0o600);
    try {
      await handle.writeFile(`${JSON.stringify(login, null, 2)}\n`);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, file);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

/** Removes the file, whatever it contains. Resolves with whether the file existed. */
export async function removeLogin(): Promise<boolean> {
  try {
    await rm(loginPath());
    return true;
  } catch (error) {
    if (error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ENOTDIR'))
      return false;
    throw error;
  }
}
