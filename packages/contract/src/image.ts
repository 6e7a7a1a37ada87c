// Images, from which machines are made. Each has the name of its stack, such as base or python.
import { type Static, Type } from 'typebox';
import { Timestamp } from './fields.ts';

export const Image = Type.Object(
  {
    stack: Type.String(),
    description: Type.String({ description: 'What is in it, or where it was imported from.' }),
    digest: Type.String({
      description: 'sha256:… of the root file system, or of the OCI image that it was imported from.',
    }),
    architecture: Type.String(),
    min_rootfs_gb: Type.Integer({ description: 'The smallest rootfs_size_gb, GiB.' }),
    default: Type.Boolean(),
    created_at: Timestamp(),
  },
  { title: 'Image' },
);
export type Image = Static<typeof Image>;

export const ImageList = Type.Object({ images: Type.Array(Image) }, { title: 'ImageList' });
