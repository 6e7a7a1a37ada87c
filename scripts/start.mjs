// `npm start`: installs the node modules, then starts the service, which does the rest of the set-up.
import { ensureNodeModules } from './node-modules.mjs';
import { runServiceNode } from './run-service-node.mjs';

ensureNodeModules();
runServiceNode('packages/service/src/main.ts', process.argv.slice(2));
