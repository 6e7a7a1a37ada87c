// `npm run bench`: installs the node modules, then measures the whole service. Arguments choose sections and sizes.
import { ensureNodeModules } from './node-modules.mjs';
import { runServiceNode } from './run-service-node.mjs';

ensureNodeModules();
runServiceNode('bench/service.ts', process.argv.slice(2));
