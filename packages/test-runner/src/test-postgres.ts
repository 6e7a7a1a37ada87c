// Starts one PostgreSQL for all tests of a run. Each test file creates its own databases on it.
import path from 'node:path';
import { homePaths } from '@sandbar/contract/home.ts';
import type { ServiceConfig } from '@sandbar/service/config.ts';
import { ensureHome } from '@sandbar/service/setup/home.ts';
import { ensurePostgresData } from '@sandbar/service/setup/postgres-data.ts';
import type { UserIds } from '@sandbar/service/setup/service-user.ts';
import { databaseUrlOf, postgresDefinition } from '@sandbar/service/supervise/definitions.ts';
import {
  type Confinement,
  confinementFor,
  makeMountPoint,
  mountPointOf,
  noConfinement,
  removeMountPoint,
} from '@sandbar/service/supervise/launch.ts';
import { SupervisedProcess } from '@sandbar/service/supervise/supervised-process.ts';

export type TestPostgres = {
  url: string;
  /** The file with the id of its first process. */
  pidFile: string;
  stop: () => Promise<void>;
};

/** Starts PostgreSQL in a folder of the tests' data directory. `env`: more variables of its environment. */
export async function startTestPostgres(
  config: ServiceConfig,
  user: UserIds | undefined,
  env: Record<string, string> = {},
): Promise<TestPostgres> {
  const home = path.join(config.home, 'pg');
  const mountPoint = mountPointOf(home);
  await ensureHome(home, user);
  if (user !== undefined) makeMountPoint(mountPoint);
  const confine = () => {
    const { checkout } = config;
    return withEnvironment(
      user === undefined ? noConfinement(checkout) : confinementFor(mountPoint, checkout, user),
      env,
    );
  };
  await ensurePostgresData(home, confine());
  const postgres = new SupervisedProcess(postgresDefinition({ ...config, home }, confine), (line) => console.log(line));
  await postgres.start();
  return {
    url: databaseUrlOf(homePaths(home).postgresSocketDir),
    pidFile: homePaths(home).pidFile('postgres'),
    stop: async () => {
      await postgres.stop();
      if (user !== undefined) removeMountPoint(mountPoint);
    },
  };
}

function withEnvironment(confinement: Confinement, env: Record<string, string>): Confinement {
  const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`);
  if (variables.length === 0) return confinement;
  return {
    ...confinement,
    wrap: (command, args) => confinement.wrap('/usr/bin/env', [...variables, command, ...args]),
  };
}
