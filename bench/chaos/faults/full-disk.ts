// Fills the disk of the host's data directory to the last block. Creates, jobs and snapshots may be
// refused with 503, and running work may wait. Nothing that runs may fail, and no acknowledged byte may be lost.
import type { Fault } from '../fault.ts';

export const fillDisk: Fault = async ({ bed }) => {
  const before = bed.disk.freeBytes();
  bed.disk.fill();
  return {
    about: `${before} bytes filled`,
    end: async () => bed.disk.empty(),
  };
};
