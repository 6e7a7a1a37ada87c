// `npm run chaos`: installs the node modules, then breaks a service at random under load, and checks that nothing was
// lost. `--faults` and `--seed` choose the length and the course.
import { ensureNodeModules } from './node-modules.mjs';
import { runServiceNode } from './run-service-node.mjs';

ensureNodeModules();
runServiceNode('bench/chaos.ts', process.argv.slice(2));
