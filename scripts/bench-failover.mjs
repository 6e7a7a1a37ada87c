// `npm run bench:failover`: installs the node modules, then measures failovers of the database.
import { ensureNodeModules } from './node-modules.mjs';
import { runServiceNode } from './run-service-node.mjs';

ensureNodeModules();
runServiceNode('bench/failover.ts', process.argv.slice(2));
