// `npm run test:fleet`: installs the node modules, then tests three hosts and two replicas on this computer, in network
// namespaces. `--minutes` and `--seed` choose the length and the course of the load.
import { ensureNodeModules } from './node-modules.mjs';
import { runServiceNode } from './run-service-node.mjs';

ensureNodeModules();
runServiceNode('tests/fleet/main.ts', process.argv.slice(2));
