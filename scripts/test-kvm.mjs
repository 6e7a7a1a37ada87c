// `npm run test:kvm`: installs the node modules, then tests machines on KVM, inside an emulated host that has it.
import { ensureNodeModules } from './node-modules.mjs';
import { runServiceNode } from './run-service-node.mjs';

ensureNodeModules();
runServiceNode('tests/kvm/main.ts', process.argv.slice(2));
