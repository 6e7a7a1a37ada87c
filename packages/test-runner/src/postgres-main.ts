// `npm run test:postgres`: runs the tests of the control plane on each supported major version of PostgreSQL, one version
// after the other, with one server for all files. Arguments are major versions, and parts of the paths of test files:
// `npm run test:postgres -- 15 billing`.
import path from 'node:path';
import { createDatabase, startPostgres } from '../../control-plane/tests/support/postgres.ts';
import { POSTGRES_MAJORS, postgresOf } from '../../control-plane/tests/support/postgres-versions.ts';
import { runNodeTests } from './node-tests.ts';
import { BUSY_FILES, selectTestFiles } from './test-files.ts';

const FOLDER = 'packages/control-plane/tests/';
const checkout = path.resolve(import.meta.dirname, '../../..');
const given = process.argv.slice(2);
const isMajor = (text: string) => POSTGRES_MAJORS.some((major) => String(major) === text);
const filters = given.filter((text) => !isMajor(text));
const wanted = POSTGRES_MAJORS.filter((major) => !given.some(isMajor) || given.includes(String(major)));
const files = selectTestFiles(checkout, filters).filter((file) => file.startsWith(FOLDER));

const results: string[] = [];
const failures: string[] = [];
for (const major of wanted) {
  console.log(`\nPostgreSQL ${major}: ${files.length} files`);
  const native = postgresOf(major);
  const server = await startPostgres({ native });
  // If the server does not work, fail here rather than in every file.
  await createDatabase(server);
  const env = { ...process.env, SANDBAR_TEST_DATABASE_URL: server.url, SANDBAR_TEST_POSTGRES: native };
  const result = await runNodeTests(checkout, files, {
    env,
    signal: new AbortController().signal,
    filesAtOnce: BUSY_FILES,
    show: (text) => void process.stdout.write(text),
  });
  await server.stop();
  results.push(`PostgreSQL ${major}: ${result.hasPassed ? 'passed' : 'FAILED'}, ${result.summary}`);
  failures.push(...result.failures.map((failure) => `PostgreSQL ${major} ${failure}`));
}
console.log(`\n${[...results, ...failures].join('\n')}`);
process.exit(failures.length === 0 && results.every((result) => !result.includes('FAILED')) ? 0 : 1);
