// `npm run test:kvm`: installs the node modules, then tests the service on KVM on a computer that has none. The test
// runs inside an emulated VM whose processor supports virtualisation.
import { ensureNodeModules } from './node-modules.mjs';
import { runServiceNode } from './run-service-node.mjs';

ensureNodeModules();
runServiceNode('tests/kvm/main.ts', process.argv.slice(2));
