// Builds the command that starts the gateway. If the agent runs as root, the gateway runs in a jail without a network
// (jail/jailed-node.ts). Otherwise the gateway runs as the agent's account, and only Node's permission model keeps it
// from reading other files and starting programs.
import { chmodSync, chownSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { confinedNode, jailedNode, type NodeCommand, SOURCES } from '../jail/jailed-node.ts';
import { reservedUids } from '../jail/uid-pool.ts';
import type { Account } from './guest-socket.ts';

export type GatewayCommand = NodeCommand & {
  /** The gateway's account, which must own the guests' sockets. Undefined: the agent's own account. */
  owner: Account | undefined;
};

/**
 * `home`: the data directory. `dir`: the folder for the guests' sockets, which this function empties or creates. Throws
 * when a tool is missing.
 */
export async function gatewayCommand(home: string, dir: string, isRoot: boolean): Promise<GatewayCommand> {
  rmSync(dir, { recursive: true, force: true });
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  const removeDir = () => rmSync(dir, { recursive: true, force: true });
  const program = { main: join(import.meta.dirname, 'main.ts'), code: codeFiles(), dir };
  if (!isRoot) return { ...confinedNode(program), owner: undefined, remove: async () => removeDir() };
  const { gateway: uid } = reservedUids(home);
  const owner = { uid, gid: uid };
  // The gateway may open the sockets in this folder, but may neither list nor change the folder.
  chownSync(dir, 0, owner.gid);
  chmodSync(dir, 0o710);
  const jail = { name: 'gateway', place: dir, uid, visible: [dir], network: 'none' } as const;
  const { command, args, remove } = await jailedNode(program, jail);
  const removeAll = async () => {
    await remove();
    removeDir();
  };
  return { command, args, owner, remove: removeAll };
}

/** The files and folders that hold the gateway's code, and the packages that it imports. */
function codeFiles(): string[] {
  const packages = join(SOURCES, '../..');
  return [
    join(SOURCES, '../package.json'),
    join(SOURCES, 'gateway'),
    join(SOURCES, 'guest'),
    join(packages, 'contract'),
    join(modulesAbove(packages), '@sandbar'),
  ];
}

/** Returns the nearest folder `node_modules` at or above `folder`. */
function modulesAbove(folder: string): string {
  const modules = join(folder, 'node_modules');
  if (existsSync(modules) || folder === '/') return modules;
  return modulesAbove(dirname(folder));
}
