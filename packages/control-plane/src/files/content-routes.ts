// The HTTP endpoints of a file's content: a body of any length, both ways.
import type { OutgoingHttpHeaders } from 'node:http';
import type { Readable } from 'node:stream';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { FileEntry, FileQuery, FileWriteQuery } from '@sandbar/contract/file.ts';
import { MachineParams } from '@sandbar/contract/machine.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { abortOnDisconnect } from '../http/disconnect.ts';
import type { Places } from '../http/places.ts';
import { isNoneMatch, parseRange, writeCondition } from './conditions.ts';
import { exampleEntry } from './examples.ts';
import { type OpenedFile, openFile, RangeNotSatisfiable } from './read.ts';
import { targetOf } from './request.ts';
import { beginAnswer, sendBody } from './send.ts';
import { writeFile } from './write.ts';

const tags = ['Files'];

export function addReadRoute(untyped: FastifyInstance, app: App, places: Places): void {
  untyped.withTypeProvider<TypeBoxTypeProvider>().route({
    method: 'GET',
    url: '/v1/machines/:id/files/content',
    schema: {
      operationId: 'readFile',
      summary: 'Read a file',
      description:
        'The bytes of a file, with ETag and Last-Modified. A Range of one part is answered with 206, and If-Range with an ' +
        'ETag makes sure that it is a part of the same file, so a download that broke off can go on. If-None-Match is ' +
        'answered with 304 while the file is unchanged. If the file gets shorter meanwhile, or the machine stops, the ' +
        'connection breaks before the end of the body. A file of /proc or /sys has no Content-Length, no parts, and at most 64 MiB.',
      tags,
      params: MachineParams,
      querystring: FileQuery,
    },
    config: {
      access: 'read',
      errors: ['conflict', 'host_unavailable', 'range_not_satisfiable', 'rate_limited'],
      binaryResponse: 'application/octet-stream',
      furtherStatuses: {
        206: { description: 'The part that Range asked for.', isBinary: true },
        304: { description: 'The file still has the ETag of If-None-Match.', isBinary: false },
      },
    },
    handler: async (request, reply) => {
      const { headers } = request;
      // A Range concerns only GET.
      const isHead = request.method === 'HEAD';
      const range = isHead ? undefined : parseRange(headers.range);
      const ifRange = headers['if-range']?.toString();
      const options = { waits: true, places, signal: abortOnDisconnect(reply) };
      const file = await openFile(app, targetOf(request), { range, ifRange }, options).catch((error: unknown) => {
        if (error instanceof RangeNotSatisfiable) reply.header('content-range', `bytes */${error.size}`);
        throw error;
      });
      const isUnchanged = isNoneMatch(headers['if-none-match'], file.etag);
      if (isUnchanged || isHead) file.stream.duplex.destroy();
      if (isUnchanged) return reply.code(304).headers(versionHeaders(file)).send();
      beginAnswer(reply, file.start === undefined ? 200 : 206, { ...versionHeaders(file), ...bodyHeaders(file) });
      if (isHead) reply.raw.end();
      else await sendBody(app, reply, file.stream, file.length);
      return reply;
    },
  });
}

/** Adds the route to a scope for raw bodies (http/raw-bodies.ts). */
export function addWriteRoute(untyped: FastifyInstance, app: App, places: Places): void {
  untyped.withTypeProvider<TypeBoxTypeProvider>().route({
    method: 'PUT',
    url: '/v1/machines/:id/files/content',
    schema: {
      operationId: 'writeFile',
      summary: 'Write a file',
      description:
        'The body, of any length and content type, becomes the content of the file. The file appears whole or not at all, ' +
        'also when the connection breaks: until the end the old file stays. Its mode and owner stay unless others are ' +
        'given. With If-None-Match: * an existing file is a 409. With If-Match and an ETag of a read, a file that has changed ' +
        'since, or does not exist any more, is a 409. A symlink stays, and the file that it names is written.',
      tags,
      params: MachineParams,
      querystring: FileWriteQuery,
      response: { 200: FileEntry },
    },
    config: {
      access: 'full',
      rateLimit: 'files',
      errors: ['conflict', 'disk_full', 'host_unavailable'],
      rawBody: true,
      examples: { response: exampleEntry() },
    },
    handler: (request, reply) => {
      const condition = writeCondition(request.headers);
      const options = { waits: true, places, signal: abortOnDisconnect(reply) };
      return writeFile(app, targetOf(request), { ...request.query, ...condition }, request.body as Readable, options);
    },
  });
}

function versionHeaders({ etag, modifiedAt }: OpenedFile): Record<string, string> {
  // A browser may keep the file but asks each time whether it changed.
  return { etag, 'last-modified': modifiedAt.toUTCString(), 'cache-control': 'private, no-cache' };
}

function bodyHeaders({ length, size, start }: OpenedFile): OutgoingHttpHeaders {
  return {
    'content-type': 'application/octet-stream',
    // The content comes from a machine, so a browser must neither guess its type nor show it as a page of this service.
    'x-content-type-options': 'nosniff',
    'content-disposition': 'attachment',
    ...(length === null ? {} : { 'content-length': length, 'accept-ranges': 'bytes' }),
    ...(start === undefined || length === null
      ? {}
      : { 'content-range': `bytes ${start}-${start + length - 1}/${size}` }),
  };
}
