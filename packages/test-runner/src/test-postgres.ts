// Starts one PostgreSQL for all tests of a run. Each test file creates its own databases on it.
import path from 'node:path';
import { homePaths } from '@sandbar/contract/home.ts';
import type { ServiceConfig } from '@sandbar/service/config.ts';
import { ensureHome } from '@sandbar/service/setup/home.ts';
import { ensurePostgresData } from '@sandbar/service/setup/postgres-data.ts';
import type { UserIds } from '@sandbar/service/setup/service-user.ts';
import { databaseUrlOf, postgresDefinition } from '@sandbar/service/supervise/definitions.ts';
import {
  confinementFor,
  makeMountPoint,
  mountPointOf,
  noConfinement,
  removeMountPoint,
} from '@sandbar/service/supervise/launch.ts';
import { SupervisedProcess } from '@sandbar/service/supervise/supervised-process.ts';

export type TestPostgres = { url: string; stop: () => Promise<void> };

/** Starts PostgreSQL in a folder of the tests' data directory. */
export async function startTestPostgres(config: ServiceConfig, user: UserIds | undefined): Promise<TestPostgres> {
  const home = path.join(config.home, 'pg');
  const mountPoint = mountPointOf(home);
  await ensureHome(home, user);
  if (user !== undefined) makeMountPoint(mountPoint);
  const confine = () =>
    user === undefined ? noConfinement(config.checkout) : confinementFor(mountPoint, config.checkout, user);
  await ensurePostgresData(home, confine());
  const postgres = new SupervisedProcess(postgresDefinition({ ...config, home }, confine), (line) => console.log(line));
  await postgres.start();
  return {
    url: databaseUrlOf(homePaths(home).postgresSocketDir),
    stop: async () => {
      await postgres.stop();
      if (user !== undefined) removeMountPoint(mountPoint);
    },
  };
}
