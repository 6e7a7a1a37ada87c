// Files of a machine: read, write, list, move, remove, archive and watch them.
import type { FileEntry, FileEvent, FileList, FileUnpacked } from '@sandbar/contract/file.ts';
import { decodePath, encodePath } from '@sandbar/contract/file-path.ts';
import { acceptNotFound, ConnectionError } from './errors.ts';
import { parseEvents } from './event-stream.ts';
import { type Content, openContent } from './file-content.ts';
import { type DownloadOptions, downloadFile } from './file-download.ts';
import { type CallOptions, machinePath } from './machines.ts';
import { sleep } from './retry.ts';
import type { RequestOptions, Transport } from './transport.ts';

/** An absolute path in a machine. Bytes name a file whose name is not valid UTF-8. */
export type FilePath = string | Uint8Array;

export type WriteOptions = CallOptions & {
  /** Permission bits, such as 0o644. Default: those of the file that is replaced, else 0o644. */
  mode?: number | undefined;
  /** The owner in the machine: a name or uid. Default: the owner of the file that is replaced, else root. */
  user?: string | undefined;
  /** Make the directories of the path that are missing. Default: true. */
  parents?: boolean | undefined;
  /** Replace a file that exists. Default: true. If false, the write fails with `conflict` when the file exists. */
  overwrite?: boolean | undefined;
};

/** The wait before a broken watch is opened again, ms. */
const REOPEN_MS = 250;

export class Files {
  readonly #transport: Transport;
  readonly #url: string;

  constructor(transport: Transport, machineId: string) {
    this.#transport = transport;
    this.#url = `${machinePath(machineId)}/files`;
  }

  /**
   * Yields the bytes of a file, or of a part of it. When the connection breaks, it goes on at the same byte, so it yields
   * each byte exactly once. Throws FileChangedError when the file was changed meanwhile.
   */
  stream(path: FilePath, options: DownloadOptions = {}): AsyncGenerator<Uint8Array> {
    return downloadFile(this.#transport, this.#of('/content', path), options);
  }

  /** The bytes of a file, or of a part of it. */
  async read(path: FilePath, options: DownloadOptions = {}): Promise<Uint8Array> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of this.stream(path, options)) chunks.push(chunk);
    return Buffer.concat(chunks);
  }

  /** The content of a file as UTF-8 text. */
  async readText(path: FilePath, options: CallOptions = {}): Promise<string> {
    return Buffer.from(await this.read(path, options)).toString();
  }

  /**
   * Writes a file and returns its entry. The file appears whole or not at all. The write is repeated after a broken
   * connection, unless the content is an iterable, which can be read only once, or `overwrite` is false.
   */
  write(path: FilePath, content: Content, options: WriteOptions = {}): Promise<FileEntry> {
    const { mode, user, parents, overwrite = true, signal } = options;
    return this.#transport.json('PUT', this.#of('/content', path), {
      ...openContent(content, overwrite),
      query: { mode: octal(mode), user, parents },
      headers: overwrite ? {} : { 'if-none-match': '*' },
      signal,
    });
  }

  /** The entry of a file, a directory, or a symlink itself. Throws ApiError `not_found`. */
  stat(path: FilePath, { signal }: CallOptions = {}): Promise<FileEntry> {
    return this.#transport.json('GET', this.#of('/entry', path), { signal });
  }

  /**
   * Yields the entries of a directory, sorted by the bytes of their paths; with `depth` 2 also those of its
   * directories.
   */
  async *entries(
    path: FilePath,
    options: CallOptions & { depth?: number | undefined } = {},
  ): AsyncGenerator<FileEntry> {
    const { depth, signal } = options;
    let cursor: string | undefined;
    do {
      const request: RequestOptions = { query: { depth, cursor }, signal };
      const page = await this.#transport.json<FileList>('GET', this.#of('', path), request);
      yield* page.entries;
      cursor = page.next_cursor;
    } while (cursor !== '');
  }

  /** Returns the entries of a directory in one array, in the same order as `entries`. */
  async list(path: FilePath, options: CallOptions & { depth?: number | undefined } = {}): Promise<FileEntry[]> {
    const entries: FileEntry[] = [];
    for await (const entry of this.entries(path, options)) entries.push(entry);
    return entries;
  }

  /** Deletes a file or an empty directory; with `recursive` a directory with everything in it. */
  remove(path: FilePath, options: CallOptions & { recursive?: boolean | undefined } = {}): Promise<void> {
    const { recursive, signal } = options;
    return this.#transport.run('DELETE', this.#of('', path), { query: { recursive }, signal }, acceptNotFound);
  }

  /** Makes a directory and those above it that are missing, and returns its entry. It may exist already. */
  mkdir(
    path: FilePath,
    options: CallOptions & { mode?: number | undefined; user?: string | undefined } = {},
  ): Promise<FileEntry> {
    const { mode, user, signal } = options;
    const body = { path_encoded: encodePath(path), mode: octal(mode), user };
    return this.#transport.json('POST', `${this.#url}/directory`, { body, isRepeatable: true, signal });
  }

  /**
   * Moves a file or directory and returns its new entry. If something exists at `to`, throws ApiError `conflict` unless
   * `overwrite` is true.
   */
  move(
    from: FilePath,
    to: FilePath,
    options: CallOptions & { overwrite?: boolean | undefined } = {},
  ): Promise<FileEntry> {
    const { overwrite, signal } = options;
    const body = { from_encoded: encodePath(from), to_encoded: encodePath(to), overwrite };
    const request = { body, isRepeatable: true, signal };
    return this.#transport.json<FileEntry>('POST', `${this.#url}/move`, request, async (refusal) => {
      if (refusal.code !== 'not_found') throw refusal;
      // An earlier attempt has moved the file if it is at the new path now.
      return this.stat(to, { signal }).catch(() => {
        throw refusal;
      });
    });
  }

  /** Yields a tar archive of a file, or of a directory with everything in it. It cannot go on after a broken connection. */
  async *archive(path: FilePath, { signal }: CallOptions = {}): AsyncGenerator<Uint8Array> {
    const response = await this.#transport.open('GET', this.#of('/archive', path), { signal });
    try {
      for await (const chunk of response.body ?? []) yield chunk;
    } catch (error) {
      signal?.throwIfAborted();
      throw new ConnectionError(this.#transport.baseUrl, error);
    }
  }

  /**
   * Unpacks a tar archive into a directory that exists. Entries that would leave the directory, and devices, are not
   * unpacked and named in the answer.
   */
  unpack(
    path: FilePath,
    archive: Content,
    options: CallOptions & { user?: string | undefined } = {},
  ): Promise<FileUnpacked> {
    const { user, signal } = options;
    const request = { ...openContent(archive, true), query: { user }, signal };
    return this.#transport.json('PUT', this.#of('/archive', path), request);
  }

  /**
   * Yields the changes of a file or directory: first `ready`, then each change, until the path itself is removed. When
   * the connection breaks, it connects again and yields `overflow`, because it may have missed changes.
   */
  async *watch(
    path: FilePath,
    options: CallOptions & { recursive?: boolean | undefined } = {},
  ): AsyncGenerator<FileEvent> {
    const { recursive, signal } = options;
    let isFirst = true;
    let brokenSince: number | undefined;
    for (;;) {
      try {
        for await (const event of this.#events(path, recursive, signal)) {
          brokenSince = undefined;
          if (isFirst || event.type !== 'ready') yield event;
          else yield { type: 'overflow' };
          isFirst = false;
        }
        return;
      } catch (error) {
        signal?.throwIfAborted();
        if (!(error instanceof ConnectionError)) throw error;
        brokenSince ??= performance.now();
        if (performance.now() + REOPEN_MS > brokenSince + this.#transport.retryForMs) throw error;
      }
      await sleep(REOPEN_MS, signal);
    }
  }

  /** The events of one connection. Throws ConnectionError when it breaks. */
  async *#events(
    path: FilePath,
    recursive: boolean | undefined,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<FileEvent> {
    const headers = { accept: 'text/event-stream' };
    const response = await this.#transport.open('GET', this.#of('/watch', path), {
      query: { recursive },
      headers,
      signal,
    });
    if (response.body === null) return;
    try {
      for await (const { data } of parseEvents(response.body)) yield JSON.parse(data) as FileEvent;
    } catch (error) {
      signal?.throwIfAborted();
      throw new ConnectionError(this.#transport.baseUrl, error);
    }
  }

  #of(operation: string, path: FilePath): string {
    return `${this.#url}${operation}?path=${encodePath(path)}`;
  }
}

/** The exact path of an entry, also when it is not valid UTF-8. */
export function pathOf({ path, path_encoded }: Pick<FileEntry, 'path' | 'path_encoded'>): FilePath {
  return path_encoded === undefined ? path : decodePath(path_encoded);
}

const octal = (mode: number | undefined): string | undefined => mode?.toString(8).padStart(4, '0');
