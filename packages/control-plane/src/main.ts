// The entry point of the control plane's process. The supervisor, systemd or a person starts it.

import { readSecrets } from '@sandbar/contract/secrets.ts';
import { startTracing } from '@sandbar/tracing/start.ts';
import { ConfigError, readConfig } from './config.ts';
import { AddressInUse, startControlPlane } from './control-plane.ts';
import { isDatabaseAway } from './db/failures.ts';
import { createLog, type Log } from './log.ts';

async function main(): Promise<void> {
  const env = readEnvironment();
  const config = readConfig(env, process.getuid?.() === 0);
  const log = createLog(config.logLevel);
  watchForBugs(log);
  const tracing = await startTracing({ service: 'sandbar-control-plane', env, log });
  const controlPlane = await startControlPlane(config, log, {}, tracing);
  const { host, port } = controlPlane.address;
  log.info({ address: `${host}:${port}` }, 'the control plane is ready');

  let ending = false;
  const end = (reason: string) => {
    if (ending) return;
    ending = true;
    log.info({ reason }, 'shutting down');
    controlPlane.close().then(
      () => process.exit(0),
      (error: unknown) => {
        log.error({ err: error }, 'the shutdown failed');
        process.exit(1);
      },
    );
  };
  process.on('SIGTERM', () => end('SIGTERM'));
  process.on('SIGINT', () => end('SIGINT'));
  // The supervisor died. Stop as well, since nobody watches this process any more.
  process.on('disconnect', () => end('the supervisor is gone'));
  process.send?.({ type: 'ready' });
}

/** Returns the environment, including the secrets. Throws `ConfigError`. */
function readEnvironment(): NodeJS.ProcessEnv {
  try {
    const env = readSecrets(process.env);
    // The database client reads this variable by itself, so set it. A value that is set here does not appear in /proc.
    if (env.PGPASSWORD) process.env.PGPASSWORD = env.PGPASSWORD;
    return env;
  } catch (error) {
    throw new ConfigError(error instanceof Error ? error.message : String(error));
  }
}

function watchForBugs(log: Log): void {
  const die = (kind: string) => (error: unknown) => {
    log.fatal({ err: error }, kind);
    process.exit(1);
  };
  process.on('uncaughtException', die('uncaught exception'));
  process.on('unhandledRejection', die('unhandled rejection'));
}

/**
 * Returns the text for an error that prevents the start: one line that says what to do. Only a bug gets a stack trace.
 */
function explain(error: unknown): string {
  if (error instanceof ConfigError || error instanceof AddressInUse) return error.message;
  const message = error instanceof Error ? error.message || error.name : String(error);
  if (isDatabaseAway(error)) {
    return `The database of SANDBAR_DATABASE_URL does not answer (${message}). Start it, or correct the variable.`;
  }
  return error instanceof Error && error.stack ? error.stack : message;
}

try {
  await main();
} catch (error) {
  const reason = explain(error);
  // The supervisor shows this reason to the operator. It is written to stderr as well, for the log.
  if (process.send) process.send({ type: 'failed', reason }, () => process.exit(1));
  process.stderr.write(`sandbar control plane: ${reason}\n`);
  if (!process.send) process.exit(1);
}
