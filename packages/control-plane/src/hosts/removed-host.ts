// Stands for the agent of a host that the operator has removed. Nothing that was on such a host exists any more. So
// deletes succeed, and clients can delete the rows of machines, volumes and snapshots that were lost with the host. A
// lookup finds nothing, and everything else is refused.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { HostClient } from './client.ts';

const refuse = async (): Promise<never> => {
  throw new ServiceError('conflict', 'Its host was removed from the service. It can only be deleted.');
};

export function createRemovedHost(): HostClient {
  const nothing = async () => undefined;
  const none = async () => [];
  return {
    info: refuse,
    listMachines: none,
    getMachine: nothing,
    ensureMachine: refuse,
    deleteMachine: async (_machineId, _generation, keepVolumeId) => {
      if (keepVolumeId !== undefined) throw new ServiceError('not_found', 'The disk was lost with its host.');
    },
    deleteMachineCopy: nothing,
    listVolumes: none,
    ensureVolume: refuse,
    deleteVolume: nothing,
    sendCopy: refuse,
    receiveCopy: refuse,
    listSnapshots: none,
    takeSnapshot: refuse,
    deleteSnapshot: nothing,
    snapshotContent: refuse,
    uploadPart: refuse,
    imageContent: refuse,
    uploadImagePart: refuse,
    addImageCopy: refuse,
    blobProgress: refuse,
    downloadPart: refuse,
    assembleBlob: refuse,
    addCopy: refuse,
    listCopies: none,
    removeCopy: nothing,
    startJob: refuse,
    listRunningJobs: nothing,
    keptOutput: nothing,
    getJob: nothing,
    cancelJob: refuse,
    readOutput: nothing,
    callGuest: refuse,
    openStream: refuse,
    connectPort: refuse,
    requestCertificate: refuse,
    installCertificate: refuse,
    audit: refuse,
    fixAudit: refuse,
    // biome-ignore lint/correctness/useYield: a removed host has no events.
    events: async function* () {
      await refuse();
    },
    closeIdle: () => undefined,
    close: () => undefined,
  };
}
