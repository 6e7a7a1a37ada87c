// Makes the hosts of a suite of tests, and removes their folders after it.
import { after } from 'node:test';
import { type Cloning, FakeHost } from './fake-host.ts';

/**
 * Returns a function that makes hosts. Call this inside `describe`: the folders of the hosts are removed after its
 * tests. A host that is made without settings has no templates.
 */
export function makeHosts(): (cloning?: Partial<Cloning>) => FakeHost {
  const made: FakeHost[] = [];
  after(() => {
    for (const host of made) host.remove();
  });
  return (cloning) => {
    const host = new FakeHost(cloning);
    made.push(host);
    return host;
  };
}
