// `npm run test:kvm`: node modules, then the test of the KVM path in an emulated host that has KVM.
import { ensureNodeModules } from './node-modules.mjs';
import { runServiceNode } from './run-service-node.mjs';

ensureNodeModules();
runServiceNode('tests/kvm/main.ts', process.argv.slice(2));
