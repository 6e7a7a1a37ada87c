// Files of a machine: read, write, list, move, remove, archive and watch them.
import type { FileEntry, FileEvent, FileList, FileUnpacked } from '@sandbar/contract/file.ts';
import { decodePath, encodePath } from '@sandbar/contract/file-path.ts';
import { collectBytes, toText } from './bytes.ts';
import type { CallOptions } from './call-options.ts';
import { ConnectionError } from './errors.ts';
import { readEvents } from './event-stream.ts';
import { type Content, openContent } from './file-content.ts';
import { type DownloadOptions, downloadFile } from './file-download.ts';
import { machinePath } from './machines.ts';
import { ReopenSchedule } from './reopen-schedule.ts';
import { acceptNotFound } from './service-errors.ts';
import type { RequestOptions, Transport } from './transport.ts';

/** An absolute path in a machine: text, or bytes when the path is not valid UTF-8. */
export type FilePath = string | Uint8Array;

export type WriteOptions = CallOptions & {
  /** Permission bits, such as 0o644. Default: those of the file that is replaced, else 0o644. */
  mode?: number | undefined;
  /** The owner in the machine: a name or uid. Default: the owner of the file that is replaced, else root. */
  user?: string | undefined;
  /** Create the missing directories above the file. Default: true. */
  parents?: boolean | undefined;
  /** Replace a file that exists. Default: true. If false, the write fails with `conflict` when the file exists. */
  overwrite?: boolean | undefined;
};

/** If the service answers a move with one of these codes, it has not asked the machine, so nothing was moved. */
const BEFORE_MOVE_CODES = ['fleet_capacity', 'shutting_down'];

export class Files {
  readonly #transport: Transport;
  readonly #url: string;

  constructor(transport: Transport, machineId: string) {
    this.#transport = transport;
    this.#url = `${machinePath(machineId)}/files`;
  }

  /**
   * Yields the bytes of a file, or of a part of it. When the connection breaks, it continues at the same byte, so it
   * yields each byte exactly once. Throws FileChangedError when the file was changed meanwhile.
   */
  stream(path: FilePath, options: DownloadOptions = {}): AsyncGenerator<Uint8Array> {
    return downloadFile(this.#transport, this.#of('/content', path), options);
  }

  /** The bytes of a file, or of a part of it. */
  async read(path: FilePath, options: DownloadOptions = {}): Promise<Uint8Array> {
    return collectBytes(this.stream(path, options));
  }

  /** The content of a file as UTF-8 text. */
  async readText(path: FilePath, options: CallOptions = {}): Promise<string> {
    return toText(await this.read(path, options));
  }

  /**
   * Writes a file and returns its entry. The file appears whole or not at all. The write is repeated after a broken
   * connection, unless the content is an iterable, which can be read only once, or `overwrite` is false.
   */
  write(path: FilePath, content: Content, options: WriteOptions = {}): Promise<FileEntry> {
    const { mode, user, parents, overwrite = true, ...call } = options;
    return this.#transport.json('PUT', this.#of('/content', path), {
      ...call,
      ...openContent(content, overwrite),
      query: { mode: octal(mode), user, parents },
      headers: overwrite ? {} : { 'if-none-match': '*' },
    });
  }

  /**
   * The entry of a file or directory. For a symlink it is the entry of the symlink itself, not of its target. Throws
   * SandbarError `not_found` when nothing exists at the path.
   */
  stat(path: FilePath, call: CallOptions = {}): Promise<FileEntry> {
    return this.#transport.json('GET', this.#of('/entry', path), call);
  }

  /**
   * Yields the entries of a directory, sorted by the bytes of their paths. With `depth` 2 it also yields the entries of
   * the directories in it, and so on.
   */
  async *entries(
    path: FilePath,
    options: CallOptions & { depth?: number | undefined } = {},
  ): AsyncGenerator<FileEntry> {
    const { depth, ...call } = options;
    let cursor: string | undefined;
    do {
      const request: RequestOptions = { ...call, query: { depth, cursor } };
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
    const { recursive, ...call } = options;
    return this.#transport.run('DELETE', this.#of('', path), { ...call, query: { recursive } }, acceptNotFound);
  }

  /** Creates a directory and the missing directories above it, and returns its entry. It may exist already. */
  mkdir(
    path: FilePath,
    options: CallOptions & { mode?: number | undefined; user?: string | undefined } = {},
  ): Promise<FileEntry> {
    const { mode, user, ...call } = options;
    const body = { path_encoded: encodePath(path), mode: octal(mode), user };
    return this.#transport.json('POST', `${this.#url}/directory`, { ...call, body, isRepeatable: true });
  }

  /**
   * Moves a file or directory and returns its new entry. If something exists at `to`, throws SandbarError `conflict`
   * unless `overwrite` is true.
   *
   * When the answer is lost (ConnectionError, `host_unavailable`), the client repeats the move. If the service then
   * finds nothing at `from`, but something at `to`, the client takes the move as done. This can be wrong: `from` may
   * never have existed, and the file at `to` may be older.
   */
  move(
    from: FilePath,
    to: FilePath,
    options: CallOptions & { overwrite?: boolean | undefined } = {},
  ): Promise<FileEntry> {
    const { overwrite, ...call } = options;
    const body = { from_encoded: encodePath(from), to_encoded: encodePath(to), overwrite };
    const request = { ...call, body, isRepeatable: true, undoneCodes: BEFORE_MOVE_CODES };
    return this.#transport.json<FileEntry>('POST', `${this.#url}/move`, request, async (refusal) => {
      if (refusal.code !== 'not_found') throw refusal;
      // If the new path exists now, an earlier attempt has moved the file.
      return this.stat(to, call).catch(() => {
        throw refusal;
      });
    });
  }

  /**
   * Yields a tar archive of a file, or of a directory with everything in it. It cannot continue after a broken
   * connection, and throws ConnectionError.
   */
  async *archive(path: FilePath, call: CallOptions = {}): AsyncGenerator<Uint8Array> {
    const response = await this.#transport.open('GET', this.#of('/archive', path), call);
    try {
      for await (const chunk of response.body ?? []) yield chunk;
    } catch (error) {
      call.signal?.throwIfAborted();
      throw new ConnectionError(this.#transport.baseUrl, error);
    }
  }

  /**
   * Unpacks a tar archive into a directory that exists. The service skips devices and entries that would lie outside
   * the directory; the answer names the skipped entries.
   */
  unpack(
    path: FilePath,
    archive: Content,
    options: CallOptions & { user?: string | undefined } = {},
  ): Promise<FileUnpacked> {
    const { user, ...call } = options;
    const request = { ...call, ...openContent(archive, true), query: { user } };
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
    const { recursive, ...call } = options;
    const { signal, isDone } = this.#transport.limit(call);
    const schedule = new ReopenSchedule(this.#transport.retryForMs);
    const request = { query: { recursive }, headers: { accept: 'text/event-stream' }, signal };
    let isFirst = true;
    try {
      for (;;) {
        try {
          const response = await this.#transport.open('GET', this.#of('/watch', path), request);
          schedule.noteOpen();
          for await (const event of readEvents<FileEvent>(response, this.#transport.baseUrl)) {
            schedule.noteProgress();
            if (isFirst || event.type !== 'ready') yield event;
            else yield { type: 'overflow' };
            isFirst = false;
          }
          return;
        } catch (error) {
          await schedule.wait(error, signal);
        }
      }
    } finally {
      isDone();
    }
  }

  #of(operation: string, path: FilePath): string {
    return `${this.#url}${operation}?path=${encodePath(path)}`;
  }
}

/** The exact path of an entry, even when the path is not valid UTF-8. */
export function pathOf({ path, path_encoded }: Pick<FileEntry, 'path' | 'path_encoded'>): FilePath {
  return path_encoded === undefined ? path : decodePath(path_encoded);
}

const octal = (mode: number | undefined): string | undefined => mode?.toString(8).padStart(4, '0');
