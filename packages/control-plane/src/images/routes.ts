// GET /v1/images lists the images that the hosts reported. It reads them from the hosts' rows in the database and does
// not call any host.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { type Image, ImageList } from '@sandbar/contract/image.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { listHosts } from '../hosts/store.ts';

const example: Image = {
  stack: 'base',
  description: 'Debian stable with git, curl and Python 3.',
  digest: 'sha256:6f1ed002ab5595859014ebf0951522d96f0b0a3d5a1e5f3bb9b1f0ad6b5a7f10',
  architecture: 'x86_64',
  min_rootfs_gb: 2,
  default: true,
  created_at: '2026-01-02T03:04:05.006Z',
};

export function addImageRoutes(untyped: FastifyInstance, app: App): void {
  untyped.withTypeProvider<TypeBoxTypeProvider>().route({
    method: 'GET',
    url: '/v1/images',
    schema: {
      operationId: 'listImages',
      summary: 'List images',
      description: 'The stacks that a machine can be made from.',
      tags: ['Images'],
      response: { 200: ImageList },
    },
    config: { access: 'read', examples: { response: { images: [example] } } },
    handler: async () => ({ images: uniqueByStack((await listHosts(app.db)).flatMap((host) => host.images)) }),
  });
}

/**
 * Returns one image for each stack, the newest. All hosts should have the same images, but during an update one host
 * may already have a newer image.
 */
function uniqueByStack(images: readonly Image[]): Image[] {
  const oldestFirst = [...images].sort((a, b) => a.created_at.localeCompare(b.created_at));
  const newest = new Map(oldestFirst.map((image) => [image.stack, image]));
  return [...newest.values()].sort((a, b) => a.stack.localeCompare(b.stack));
}
