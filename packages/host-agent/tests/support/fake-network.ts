// A network without taps. It records which VM has which address, so that tests can find leftovers, and it can make any
// step fail.
import type { Nic } from '../../src/hypervisor/driver.ts';
import { UserNetwork } from '../../src/network/user-network.ts';
import type { FakeHypervisor } from './fake-hypervisor.ts';

export class FakeNetwork extends UserNetwork {
  /** The assigned address of each attached VM, by VM id. Undefined before `assign` is called. */
  readonly attached = new Map<string, string | undefined>();
  readonly #host: FakeHypervisor;

  constructor(subnet: ConstructorParameters<typeof UserNetwork>[0], host: FakeHypervisor) {
    super(subnet);
    this.#host = host;
  }

  override attach(vmId?: string): Promise<Nic> {
    return this.#host.step('attach', () => {
      this.attached.set(String(vmId), this.attached.get(String(vmId)));
      return super.attach();
    });
  }

  override assign(vmId?: string, privateIp?: string): Promise<void> {
    return this.#host.step('assign', () => {
      for (const [other, address] of this.attached) if (address === privateIp) this.attached.set(other, undefined);
      this.attached.set(String(vmId), privateIp);
    });
  }

  override detach(vmId?: string): Promise<void> {
    return this.#host.step('detach', () => void this.attached.delete(String(vmId)));
  }

  override async listVmIds(): Promise<string[]> {
    return [...this.attached.keys()];
  }
}
