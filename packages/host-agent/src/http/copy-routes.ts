// The routes of the host API that send a volume or a stopped machine to another host, and take one in. Hosts cannot call
// each other, so the control plane passes the bytes on. Each side waits for the slower one.
import { Readable } from 'node:stream';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { ServiceError } from '@sandbar/contract/errors.ts';
import {
  HOST_PATHS,
  HostCopyQuery,
  HostMachineParams,
  HostVolume,
  HostVolumeParams,
  ReceivedMachine,
} from '@sandbar/contract/host-api.ts';
import type { FastifyInstance } from 'fastify';
import type { MachineCopies } from '../moves/machine-copies.ts';
import type { VolumeCopies } from '../moves/volume-copies.ts';
import { EarlyCollection } from './early-collection.ts';

const BYTES = 'application/octet-stream';

/** Needs the content type parser of addGuestRoutes, which passes the body on as it arrives. */
export function addCopyRoutes(untyped: FastifyInstance, volumes: VolumeCopies, machines: MachineCopies): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  const collection = new EarlyCollection();
  const counted = async function* (stream: AsyncIterable<Buffer>) {
    for await (const piece of stream) {
      collection.notePassed(piece);
      yield piece;
    }
  };
  const readable = (stream: AsyncGenerator<Buffer>) => Readable.from(counted(stream), { objectMode: false });
  const contentOf = (body: unknown): Readable => {
    if (!(body instanceof Readable)) throw new ServiceError('validation_error', `the body must be ${BYTES}`);
    return Readable.from(counted(body), { objectMode: false });
  };

  server.get(HOST_PATHS.volumeCopy, { schema: { params: HostVolumeParams } }, async (request, reply) =>
    reply.type(BYTES).send(readable(await volumes.send(request.params.id))),
  );

  server.put(
    HOST_PATHS.volumeCopy,
    { schema: { params: HostVolumeParams, querystring: HostCopyQuery, response: { 200: HostVolume } } },
    (request) => volumes.receive(request.params.id, request.query.generation, contentOf(request.body)),
  );

  server.get(HOST_PATHS.machineCopy, { schema: { params: HostMachineParams } }, async (request, reply) =>
    reply.type(BYTES).send(readable(await machines.send(request.params.id))),
  );

  server.put(
    HOST_PATHS.machineCopy,
    { schema: { params: HostMachineParams, querystring: HostCopyQuery, response: { 200: ReceivedMachine } } },
    (request) => machines.receive(request.params.id, request.query.generation, contentOf(request.body)),
  );
}
