// `npm test`: node modules, then set-up and every test; arguments filter the test files by path.
import { ensureNodeModules } from './node-modules.mjs';
import { runServiceNode } from './run-service-node.mjs';

ensureNodeModules();
runServiceNode('packages/test-runner/src/main.ts', process.argv.slice(2));
