// The tools that read, write and list files of a machine.
import type { FileEntry, FileList } from '@sandbar/contract/file.ts';
import { FILE_BOUNDS } from '@sandbar/contract/file.ts';
import { encodePath } from '@sandbar/contract/file-path.ts';
import { BASE64_PATTERN, FILE_MODE_PATTERN } from '@sandbar/contract/patterns.ts';
import { fromBase64, toBytes } from '@sandbar/sdk/bytes.ts';
import { machinePath } from '@sandbar/sdk/machines.ts';
import { z } from 'zod';
import { absolutePath, machineId, maxBytes, offset } from './fields.ts';
import { FILE_ENCODINGS, readFileBytes, toFilePart } from './file-part.ts';
import { DESTROYS, defineTool, READS, type RegisterTool } from './tool.ts';
import { ToolError } from './tool-errors.ts';

const CONTENT_MAX = 2_000_000;
const LIST_DEFAULT = 200;
const BASE64 = new RegExp(BASE64_PATTERN);

const fileRead = defineTool({
  name: 'file_read',
  title: 'Read a file',
  description:
    'Returns a file of a running machine, or a part of it: text as it is, anything else as base64 (see encoding in the ' +
    'result). Read on from next_offset until it is null.',
  input: z.strictObject({
    machine_id: machineId,
    path: absolutePath,
    offset,
    max_bytes: maxBytes,
    encoding: z.enum(FILE_ENCODINGS).optional().describe('Default: utf-8 for text, else base64.'),
  }),
  output: z.object({
    path: z.string(),
    content: z.string(),
    encoding: z.enum(FILE_ENCODINGS),
    size: z.number().nullable().describe('Bytes of the whole file; null when it has no size.'),
    offset: z.number(),
    next_offset: z.number().nullable().describe('Where to read on; null at the end of the file.'),
  }),
  annotations: READS,
  run: async ({ machine_id, path, offset, max_bytes, encoding }, { client, signal }) => {
    const wanted = { machineId: machine_id, path, offset, maxBytes: max_bytes };
    const bytes = await readFileBytes(client, wanted, { signal });
    const part = toFilePart(bytes, encoding);
    const { size } = bytes;
    const of = size === null ? '' : ` of ${size}`;
    const hint =
      part.nextOffset === null
        ? ''
        : `[The file is cut at byte ${part.nextOffset}${of}. Read on with offset ${part.nextOffset}.]`;
    const text = [part.encoding === 'base64' ? '[base64]' : '', part.content, hint].filter((line) => line !== '');
    return {
      data: {
        path,
        content: part.content,
        encoding: part.encoding,
        size,
        offset: part.offset,
        next_offset: part.nextOffset,
      },
      text: text.length === 0 ? '[The file is empty.]' : text.join('\n'),
    };
  },
});

const fileWrite = defineTool({
  name: 'file_write',
  title: 'Write a file',
  description:
    'Writes a whole file in a running machine and replaces what was there; missing directories are made. The file ' +
    'appears whole or not at all. To change a part of a file, read it first or use exec.',
  input: z.strictObject({
    machine_id: machineId,
    path: absolutePath,
    content: z.string().max(CONTENT_MAX).describe(`At most ${CONTENT_MAX} characters.`),
    encoding: z.enum(FILE_ENCODINGS).default('utf-8').describe('Of content.'),
    mode: z
      .string()
      .regex(new RegExp(FILE_MODE_PATTERN), 'must be octal, such as 0755')
      .optional()
      .describe('Permission bits, octal, such as 0755. Default: those of the old file, else 0644.'),
    user: z.string().optional().describe('Owner. Default: that of the old file, else root.'),
    overwrite: z.boolean().default(true).describe('If false, a file that exists is refused with conflict.'),
  }),
  output: z.object({ path: z.string(), size: z.number(), mode: z.string() }),
  annotations: DESTROYS,
  run: async ({ machine_id, path, content, encoding, mode, user, overwrite }, { client, signal }) => {
    if (encoding === 'base64' && !BASE64.test(content)) {
      throw new ToolError('validation_error', 'content is not base64.', 'Encode it, or leave out encoding for text.');
    }
    const bytes = encoding === 'base64' ? fromBase64(content) : toBytes(content);
    const bits = mode === undefined ? undefined : Number.parseInt(mode, 8);
    const entry = await client.files(machine_id).write(path, bytes, { mode: bits, user, overwrite, signal });
    const data = { path: entry.path, size: entry.size, mode: entry.mode };
    return { data, text: `Wrote ${entry.size} bytes to ${entry.path} (${entry.mode}).` };
  },
});

const FileRecord = z.object({
  path: z.string(),
  type: z.string(),
  size: z.number(),
  mode: z.string(),
  modified_at: z.string(),
  target: z.string().optional().describe('Of a symlink.'),
});

const fileList = defineTool({
  name: 'file_list',
  title: 'List files',
  description: 'Lists a directory of a running machine, sorted by path. With depth also what is below its directories.',
  input: z.strictObject({
    machine_id: machineId,
    path: absolutePath,
    depth: z.int().min(1).max(FILE_BOUNDS.depthMax).default(1).describe('1: only this directory.'),
    limit: z.int().min(1).max(FILE_BOUNDS.pageMax).default(LIST_DEFAULT).describe('Most entries to return.'),
    cursor: z.string().max(20_000).optional().describe('next_cursor of the call before.'),
  }),
  output: z.object({
    entries: z.array(FileRecord),
    next_cursor: z.string().nullable().describe('Null: there are no more entries.'),
  }),
  annotations: READS,
  run: async ({ machine_id, path, depth, limit, cursor }, { client, signal }) => {
    const url = `${machinePath(machine_id)}/files?path=${encodePath(path)}`;
    const response = await client.request('GET', url, { query: { depth, page_size: limit, cursor }, signal });
    const { entries, next_cursor } = (await response.json()) as FileList;
    const hint = next_cursor === '' ? [] : [`[There are more entries: go on with cursor ${next_cursor}]`];
    const lines = [...entries.map(entryLine), ...hint];
    return {
      data: { entries: entries.map(toFileRecord), next_cursor: next_cursor === '' ? null : next_cursor },
      text: lines.length === 0 ? '[The directory is empty.]' : lines.join('\n'),
    };
  },
});

function toFileRecord({ path, type, size, mode, modified_at, target }: FileEntry): z.infer<typeof FileRecord> {
  return { path, type, size, mode, modified_at, ...(target === undefined ? {} : { target }) };
}

function entryLine({ path, type, size, mode, modified_at, target }: FileEntry): string {
  const name = type === 'directory' ? `${path}/` : target === undefined ? path : `${path} -> ${target}`;
  return `${mode} ${String(size).padStart(10)} ${modified_at} ${name}`;
}

export const FILE_TOOLS: RegisterTool[] = [fileRead, fileWrite, fileList];
