// Fills the disk of the host's data directory to the last block. The load may see 503: creates, jobs and snapshots are
// refused, and what runs waits. Nothing that runs may fail, and no byte that was acknowledged may be lost.
import type { Fault } from '../fault.ts';

export const fillDisk: Fault = async ({ bed }) => {
  const before = bed.disk.freeBytes();
  bed.disk.fill();
  return {
    about: `${before} bytes filled`,
    end: async () => bed.disk.empty(),
  };
};
