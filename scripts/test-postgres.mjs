// `npm run test:postgres`: installs the node modules, then runs the tests of the control plane on each supported version
// of PostgreSQL. Arguments choose versions and files.
import { ensureNodeModules } from './node-modules.mjs';
import { runServiceNode } from './run-service-node.mjs';

ensureNodeModules();
runServiceNode('packages/test-runner/src/postgres-main.ts', process.argv.slice(2));
