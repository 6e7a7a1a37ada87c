// Builds a tiny Linux program that shows whether it was run: it appends its name to a file and exits with 0. It is an
// ELF file that needs no loader and no library, so it can take the place of any program of a disk, also of the loader
// itself.

/** The file to which every such program appends a line with its name. */
export const MARKER = '/marker';

const ELF_BYTES = 64;
const PROGRAM_HEADER_BYTES = 56;
const [O_WRONLY, O_CREAT, O_APPEND] = [0x1, 0x40, 0x400];

/** The program for x86-64, position-independent as the kernel demands of a loader. `name` is at most 100 characters. */
export function markerProgram(name: string): Buffer {
  const path = Buffer.from(`${MARKER}\0`);
  const line = Buffer.from(`${name}\n`);
  const code = (pathAt: number, lineAt: number) =>
    Buffer.concat([
      Buffer.from([0xb8, ...le32(2)]), // mov eax, SYS_open
      Buffer.from([0x48, 0x8d, 0x3d, ...le32(pathAt - 12)]), // lea rdi, [path]
      Buffer.from([0xbe, ...le32(O_WRONLY | O_CREAT | O_APPEND)]), // mov esi, flags
      Buffer.from([0xba, ...le32(0o666)]), // mov edx, mode
      Buffer.from([0x0f, 0x05]), // syscall
      Buffer.from([0x89, 0xc7]), // mov edi, eax
      Buffer.from([0xb8, ...le32(1)]), // mov eax, SYS_write
      Buffer.from([0x48, 0x8d, 0x35, ...le32(lineAt - 38)]), // lea rsi, [line]
      Buffer.from([0xba, ...le32(line.length)]), // mov edx, length
      Buffer.from([0x0f, 0x05]), // syscall
      Buffer.from([0xb8, ...le32(60)]), // mov eax, SYS_exit
      Buffer.from([0x31, 0xff]), // xor edi, edi
      Buffer.from([0x0f, 0x05]), // syscall
    ]);
  const codeBytes = code(0, 0).length;
  const content = Buffer.concat([code(codeBytes, codeBytes + path.length), path, line]);
  return Buffer.concat([headers(content.length), content]);
}

/** An ELF header and one segment that maps the whole file for reading and execution at address 0. */
function headers(contentBytes: number): Buffer {
  const start = ELF_BYTES + PROGRAM_HEADER_BYTES;
  const header = Buffer.alloc(start);
  header.write('\x7fELF\x02\x01\x01', 'latin1');
  header.writeUInt16LE(3, 16); // ET_DYN
  header.writeUInt16LE(62, 18); // x86-64
  header.writeUInt32LE(1, 20);
  header.writeBigUInt64LE(BigInt(start), 24); // entry
  header.writeBigUInt64LE(BigInt(ELF_BYTES), 32); // program headers
  header.writeUInt16LE(ELF_BYTES, 52);
  header.writeUInt16LE(PROGRAM_HEADER_BYTES, 54);
  header.writeUInt16LE(1, 56);
  header.writeUInt32LE(1, ELF_BYTES); // PT_LOAD
  header.writeUInt32LE(5, ELF_BYTES + 4); // read and execute
  const bytes = BigInt(start + contentBytes);
  header.writeBigUInt64LE(bytes, ELF_BYTES + 32);
  header.writeBigUInt64LE(bytes, ELF_BYTES + 40);
  header.writeBigUInt64LE(4096n, ELF_BYTES + 48);
  return header;
}

function le32(value: number): number[] {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32LE(value);
  return [...bytes];
}
