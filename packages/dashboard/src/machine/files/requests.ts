// The requests about files of a machine, except their content.
import { infiniteQueryOptions, queryOptions } from '@tanstack/react-query';
import { ApiProblem, api, type Schemas, unwrap } from '../../api/client.ts';
import type { EncodedPath } from './path.ts';

export type FileEntry = Schemas['FileEntry'];

/** `path` is percent-encoded already, all other parameters are not. */
const querySerializer = (query: object): string =>
  Object.entries(query)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name}=${name === 'path' ? value : encodeURIComponent(String(value))}`)
    .join('&');

const parametersOf = <Q extends object>(id: string, query: Q) => ({
  params: { path: { id }, query },
  querySerializer,
});

/** The URL of an endpoint that has a path of a file as its parameter. */
export const fileUrl = (machineId: string, endpoint: 'content' | 'archive' | 'watch', path: EncodedPath): string =>
  `/v1/machines/${machineId}/files/${endpoint}?path=${path}`;

/** The prefix of all query keys about the files of a machine. */
export const filesKey = (machineId: string) => ['files', machineId] as const;

/** What is at a path. `isFolder` is also true for a symlink to a folder. */
type Place = { entry: FileEntry; isFolder: boolean };

export const placeQuery = (machineId: string, path: EncodedPath) =>
  queryOptions({
    queryKey: [...filesKey(machineId), 'place', path],
    queryFn: async (): Promise<Place> => {
      const entry = await unwrap(api.GET('/v1/machines/{id}/files/entry', parametersOf(machineId, { path })));
      if (entry.type !== 'symlink') return { entry, isFolder: entry.type === 'directory' };
      return { entry, isFolder: await namesFolder(machineId, path) };
    },
  });

/** Whether a symlink names a folder. The entry of a symlink describes the symlink itself, but a list follows it. */
async function namesFolder(machineId: string, path: EncodedPath): Promise<boolean> {
  try {
    await unwrap(api.GET('/v1/machines/{id}/files', parametersOf(machineId, { path, page_size: 1 })));
    return true;
  } catch (error) {
    if (error instanceof ApiProblem && error.status === 409) return false;
    throw error;
  }
}

/** The entries of a folder, a page at a time. */
export const folderQuery = (machineId: string, path: EncodedPath) =>
  infiniteQueryOptions({
    queryKey: [...filesKey(machineId), 'folder', path],
    queryFn: ({ pageParam }) =>
      unwrap(
        api.GET(
          '/v1/machines/{id}/files',
          parametersOf(machineId, { path, ...(pageParam === '' ? {} : { cursor: pageParam }) }),
        ),
      ),
    initialPageParam: '',
    getNextPageParam: ({ next_cursor }) => (next_cursor === '' ? undefined : next_cursor),
  });

/** Whether something is at the path. */
export async function exists(machineId: string, path: EncodedPath): Promise<boolean> {
  try {
    await unwrap(api.GET('/v1/machines/{id}/files/entry', parametersOf(machineId, { path })));
    return true;
  } catch (error) {
    if (error instanceof ApiProblem && error.status === 404) return false;
    throw error;
  }
}

export const removeFile = (machineId: string, path: EncodedPath, recursive: boolean): Promise<unknown> =>
  unwrap(api.DELETE('/v1/machines/{id}/files', parametersOf(machineId, { path, recursive })));

export const createFolder = (machineId: string, path: EncodedPath): Promise<FileEntry> =>
  unwrap(
    api.POST('/v1/machines/{id}/files/directory', {
      params: { path: { id: machineId } },
      body: { path_encoded: path },
    }),
  );

export const moveFile = (
  machineId: string,
  from: EncodedPath,
  to: EncodedPath,
  overwrite: boolean,
): Promise<FileEntry> =>
  unwrap(
    api.POST('/v1/machines/{id}/files/move', {
      params: { path: { id: machineId } },
      body: { from_encoded: from, to_encoded: to, overwrite },
    }),
  );
