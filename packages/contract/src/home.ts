// The paths in the data directory, in one list that every process and tool uses.

/** Paths below `SANDBAR_HOME`. */
export function homePaths(home: string) {
  const run = `${home}/run`;
  return {
    home,
    /** `{ base_url, api_key, email, password }` of the first account, mode 0600. */
    credentials: `${home}/credentials.json`,
    /** The secret that signs cursors and session cookies, mode 0600. All replicas of one service have the same. */
    secret: `${home}/secret`,
    /** The values that the host agent chose at its first start and keeps using: host id, subnet, bridge name. */
    hostState: `${home}/host.json`,
    /** The agent's key, certificate and trusted authorities, once this host has joined a fleet. Mode 0700. */
    fleet: `${home}/fleet`,
    /** The key and the certificate that the control plane got by ACME. Mode 0700. */
    acme: `${home}/acme`,
    postgresData: `${home}/postgres`,
    logs: `${home}/logs`,
    /** An allocated file that nobody writes to. It reserves disk space, so that guests cannot fill the disk. */
    ballast: `${home}/ballast`,
    /** Disks, specs and job output of machines: `<machines>/<id>/`. */
    machines: `${home}/machines`,
    /** Disks that can outlive their machine: `<volumes>/<id>/`. On the same file system as `machines`. */
    volumes: `${home}/volumes`,
    /** Read-only layers below root disks: `<layers>/<id>.qcow2`. On the same file system as `machines`. */
    layers: `${home}/layers`,
    /**
     * `<snapshots>/<id>/`: the list of its layers and, for a memory snapshot, the memory and the state of the devices.
     */
    snapshots: `${home}/snapshots`,
    /** Copies of snapshots of other hosts: `<snapshotCopies>/<id>/`. A cache, on the same file system as `machines`. */
    snapshotCopies: `${home}/snapshot-copies`,
    /** Images that were fetched from the object store: `<imageCopies>/<stack>.json`. A cache. */
    imageCopies: `${home}/image-copies`,
    /** Files that were fetched from the object store: `<blobs>/<sha256>`. On the same file system as `machines`. */
    blobs: `${home}/blobs`,
    /** Saved VMs from which new VMs start. A cache: it may be deleted while the service is stopped. */
    templates: `${home}/templates`,
    /** Disks of the ready VMs of the pool. A cache, on the same file system as `machines`. */
    pool: `${home}/pool`,
    run,
    /** The host agent's record of each QEMU process: `<runVms>/<vm id>.json`. */
    runVms: `${run}/vms`,
    /** Run directories of the ready VMs of the pool, and of VMs that are being made into templates. */
    runPool: `${run}/pool`,
    runTemplates: `${run}/templates`,
    /** Sockets, pid files and consoles of running VMs: `<runMachines>/<id>/`. */
    runMachines: `${run}/machines`,
    /** The sockets of guests to which the host agent's gateway is connecting right now. */
    runGateway: `${run}/gateway`,
    /** Copies of the API's certificate and key, for the account of the control plane to read. */
    tls: `${run}/tls`,
    postgresSocketDir: `${run}/postgres`,
    hostAgentSocket: `${run}/host-agent.sock`,
    /** The socket on which the control plane takes the operator's commands. Whoever can open it is the operator. */
    adminSocket: `${run}/control-plane/admin.sock`,
    /** Exists while the service is ready. Contains the address of the service and the pid of its supervisor. */
    ready: `${run}/ready.json`,
    pidFile: (process: 'postgres' | 'control-plane' | 'host-agent' | 'supervisor') => `${run}/${process}.pid`,
  } as const;
}

/** The data directory: `SANDBAR_HOME`, else `/var/lib/sandbar` as root, else `$XDG_DATA_HOME/sandbar`. */
export function defaultHome(env: Record<string, string | undefined>, isRoot: boolean): string {
  if (env.SANDBAR_HOME) return env.SANDBAR_HOME;
  if (isRoot) return '/var/lib/sandbar';
  return `${env.XDG_DATA_HOME || `${env.HOME}/.local/share`}/sandbar`;
}

/**
 * Downloads and built images, keyed by content: `SANDBAR_CACHE`, else `/var/cache/sandbar` as root, else
 * `$XDG_CACHE_HOME/sandbar`.
 */
export function defaultCache(env: Record<string, string | undefined>, isRoot: boolean): string {
  if (env.SANDBAR_CACHE) return env.SANDBAR_CACHE;
  if (isRoot) return '/var/cache/sandbar';
  return `${env.XDG_CACHE_HOME || `${env.HOME}/.cache`}/sandbar`;
}

export const DEFAULT_LISTEN = '127.0.0.1:7070';
export const DEFAULT_METRICS_LISTEN = '127.0.0.1:7071';
