// `npm run pack:deb`: installs the node modules, then builds the Debian package into build/.
import { ensureNodeModules } from './node-modules.mjs';
import { runServiceNode } from './run-service-node.mjs';

ensureNodeModules();
runServiceNode('packages/packaging/src/deb/main.ts', process.argv.slice(2));
