// `npm test`: installs the node modules, then sets up and runs every test. Arguments choose test files by path.
import { ensureNodeModules } from './node-modules.mjs';
import { runServiceNode } from './run-service-node.mjs';

ensureNodeModules();
runServiceNode('packages/test-runner/src/main.ts', process.argv.slice(2));
