// `npm run bench`: node modules, then the benchmark of the whole service; its arguments choose sections and sizes.
import { ensureNodeModules } from './node-modules.mjs';
import { runServiceNode } from './run-service-node.mjs';

ensureNodeModules();
runServiceNode('bench/service.ts', process.argv.slice(2));
