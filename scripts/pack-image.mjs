// `npm run pack:image`: installs the node modules, then builds the container image of the control plane into build/.
import { ensureNodeModules } from './node-modules.mjs';
import { runServiceNode } from './run-service-node.mjs';

ensureNodeModules();
runServiceNode('packages/packaging/src/image/main.ts', process.argv.slice(2));
