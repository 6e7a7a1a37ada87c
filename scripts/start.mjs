// `npm start`: node modules, then the service, which does the rest of the set-up itself.
import { ensureNodeModules } from './node-modules.mjs';
import { runServiceNode } from './run-service-node.mjs';

ensureNodeModules();
runServiceNode('packages/service/src/main.ts', process.argv.slice(2));
