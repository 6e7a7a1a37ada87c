// Where things live in the data directory: the one list that every process and tool reads.

/** Paths below `SANDBAR_HOME`. */
export function homePaths(home: string) {
  const run = `${home}/run`;
  return {
    home,
    /** `{ base_url, api_key, email, password }` of the first account, mode 0600. */
    credentials: `${home}/credentials.json`,
    /** Signs cursors and session cookies, mode 0600; every replica of one service has the same. */
    secret: `${home}/secret`,
    /** What the host agent made once for itself: host id, subnet, bridge name. */
    hostState: `${home}/host.json`,
    postgresData: `${home}/postgres`,
    logs: `${home}/logs`,
    /** Disks, specs and job output of machines: `<machines>/<id>/`. */
    machines: `${home}/machines`,
    /** Disks that have a life of their own: `<volumes>/<id>/`. On the file system of `machines`. */
    volumes: `${home}/volumes`,
    /** What root disks stand on, written by nobody any more: `<layers>/<id>.qcow2`. On the file system of `machines`. */
    layers: `${home}/layers`,
    /** `<snapshots>/<id>/`: which layers it consists of, and the memory and devices of one that has them. */
    snapshots: `${home}/snapshots`,
    /** Saved VMs that new ones start from: a cache. */
    templates: `${home}/templates`,
    /** Disks of VMs that wait for a machine: a cache. On the file system of `machines`. */
    pool: `${home}/pool`,
    run,
    /** What the host agent knows of each QEMU: `<runVms>/<vm id>.json`. */
    runVms: `${run}/vms`,
    /** Run directories of VMs that wait for a machine, and of those that become a template. */
    runPool: `${run}/pool`,
    runTemplates: `${run}/templates`,
    /** Sockets, pid files and consoles of running VMs: `<runMachines>/<id>/`. */
    runMachines: `${run}/machines`,
    postgresSocketDir: `${run}/postgres`,
    hostAgentSocket: `${run}/host-agent.sock`,
    /** Operator actions; answered by the control plane, reachable by who may open it. */
    adminSocket: `${run}/control-plane/admin.sock`,
    pidFile: (process: 'postgres' | 'control-plane' | 'host-agent' | 'supervisor') => `${run}/${process}.pid`,
  } as const;
}

/** The data directory: `SANDBAR_HOME`, else `/var/lib/sandbar` as root, else `$XDG_DATA_HOME/sandbar`. */
export function defaultHome(env: Record<string, string | undefined>, isRoot: boolean): string {
  if (env.SANDBAR_HOME) return env.SANDBAR_HOME;
  if (isRoot) return '/var/lib/sandbar';
  return `${env.XDG_DATA_HOME || `${env.HOME}/.local/share`}/sandbar`;
}

/** Downloads and built images, keyed by content: `SANDBAR_CACHE`, else `/var/cache/sandbar` as root, else `$XDG_CACHE_HOME/sandbar`. */
export function defaultCache(env: Record<string, string | undefined>, isRoot: boolean): string {
  if (env.SANDBAR_CACHE) return env.SANDBAR_CACHE;
  if (isRoot) return '/var/cache/sandbar';
  return `${env.XDG_CACHE_HOME || `${env.HOME}/.cache`}/sandbar`;
}

export const DEFAULT_LISTEN = '127.0.0.1:7070';
export const DEFAULT_METRICS_LISTEN = '127.0.0.1:7071';
