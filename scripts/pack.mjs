// `npm run pack`: installs the node modules, then builds the npm packages into build/npm.
import { ensureNodeModules } from './node-modules.mjs';
import { runServiceNode } from './run-service-node.mjs';

ensureNodeModules();
runServiceNode('packages/packaging/src/main.ts', process.argv.slice(2));
