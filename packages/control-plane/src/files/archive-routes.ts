// The HTTP endpoints of archives: a tree of files as one tar stream, both ways.
import type { Readable } from 'node:stream';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { FileQuery, FileUnpacked, FileUnpackQuery } from '@sandbar/contract/file.ts';
import { MachineParams } from '@sandbar/contract/machine.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { abortOnDisconnect } from '../http/disconnect.ts';
import type { Places } from '../http/places.ts';
import { openArchive, unpackArchive } from './archive.ts';
import { targetOf } from './request.ts';
import { beginAnswer, sendBody } from './send.ts';

const tags = ['Files'];
const TAR = 'application/x-tar';

export function addArchiveRoute(untyped: FastifyInstance, app: App, places: Places): void {
  untyped.withTypeProvider<TypeBoxTypeProvider>().route({
    method: 'GET',
    url: '/v1/machines/:id/files/archive',
    exposeHeadRoute: false,
    schema: {
      operationId: 'readArchive',
      summary: 'Read a tree as an archive',
      description:
        'A tar archive (PAX) of a file or of a directory with everything in it. Names in it are relative to the path. If ' +
        'the tree cannot be read to its end, the connection breaks before the end of the body.',
      tags,
      params: MachineParams,
      querystring: FileQuery,
    },
    config: {
      access: 'read',
      errors: ['conflict', 'host_unavailable', 'rate_limited'],
      binaryResponse: TAR,
    },
    handler: async (request, reply) => {
      const options = { waits: true, places, signal: abortOnDisconnect(reply) };
      const stream = await openArchive(app, targetOf(request), options);
      beginAnswer(reply, 200, {
        'content-type': TAR,
        'x-content-type-options': 'nosniff',
        'content-disposition': 'attachment',
        'cache-control': 'no-store',
      });
      await sendBody(app, reply, stream, null);
      return reply;
    },
  });
}

/** Adds the route to a scope for raw bodies (http/raw-bodies.ts). */
export function addUnpackRoute(untyped: FastifyInstance, app: App, places: Places): void {
  untyped.withTypeProvider<TypeBoxTypeProvider>().route({
    method: 'PUT',
    url: '/v1/machines/:id/files/archive',
    schema: {
      operationId: 'unpackArchive',
      summary: 'Unpack an archive',
      description:
        'Unpacks the body, a tar archive, into a directory that exists. An entry that would leave the ' +
        'directory, by .. or an absolute path or a link, is left out and named in the answer, and so is a device. The ' +
        'other entries are unpacked. If the connection breaks, the entries before that stay.',
      tags,
      params: MachineParams,
      querystring: FileUnpackQuery,
      response: { 200: FileUnpacked },
    },
    config: {
      access: 'full',
      rateLimit: 'files',
      errors: ['conflict', 'disk_full', 'host_unavailable'],
      rawBody: true,
      examples: {
        response: {
          entries: 12,
          refused_count: 1,
          refused: [{ name: '../x', reason: 'it would leave the directory' }],
        },
      },
    },
    handler: (request, reply) => {
      const options = { waits: true, places, signal: abortOnDisconnect(reply) };
      return unpackArchive(app, targetOf(request), request.query, request.body as Readable, options);
    },
  });
}
