// A network without taps. It records what each VM has, so that tests can see leftovers, and it can make any step fail.
import type { Nic } from '../../src/hypervisor/driver.ts';
import { UserNetwork } from '../../src/network/user-network.ts';
import type { FakeHypervisor } from './fake-hypervisor.ts';

export class FakeNetwork extends UserNetwork {
  /** Assigned address by VM id; undefined before `assign`. */
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
