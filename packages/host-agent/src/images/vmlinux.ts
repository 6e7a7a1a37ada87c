/**
 * Takes the uncompressed kernel out of a bzImage. QEMU starts an uncompressed ELF kernel directly at its PVH entry
 * point, so the guest skips the real-mode set-up and does not decompress itself. Format:
 * Documentation/arch/x86/boot.rst of the Linux kernel ("The Real-Mode Kernel Header").
 */
import zlib from 'node:zlib';
import { runBuildCommand } from './build-command.ts';

const SETUP_SECTORS_AT = 0x1f1;
const MAGIC_AT = 0x202;
const PAYLOAD_OFFSET_AT = 0x248;
const PAYLOAD_LENGTH_AT = 0x24c;
/**
 * The kernel's build appends the uncompressed size (4 bytes) to every payload except gzip, whose format already ends
 * with that size.
 */
const SIZE_TRAILER = 4;

/** Returns the ELF image, or undefined when the file is no bzImage or its compression is not supported. */
export async function extractVmlinux(bzImage: Buffer): Promise<Buffer | undefined> {
  const payload = findPayload(bzImage);
  if (payload === undefined) return undefined;
  const kernel = await decompress(payload);
  return kernel?.subarray(0, 4).toString('latin1') === '\x7fELF' ? kernel : undefined;
}

function findPayload(bzImage: Buffer): Buffer | undefined {
  if (bzImage.length < 0x260 || bzImage.toString('latin1', MAGIC_AT, MAGIC_AT + 4) !== 'HdrS') return undefined;
  const setupSectors = bzImage.readUInt8(SETUP_SECTORS_AT) || 4;
  const start = (setupSectors + 1) * 512 + bzImage.readUInt32LE(PAYLOAD_OFFSET_AT);
  return bzImage.subarray(start, start + bzImage.readUInt32LE(PAYLOAD_LENGTH_AT));
}

async function decompress(payload: Buffer): Promise<Buffer | undefined> {
  const withoutSize = payload.subarray(0, -SIZE_TRAILER);
  switch (payload.toString('hex', 0, 4)) {
    case '28b52ffd':
      return zlib.zstdDecompressSync(withoutSize);
    case 'fd377a58':
      return runBuildCommand({ command: 'xz', args: ['-dc', '--single-stream'], input: withoutSize });
    default:
      return payload.toString('hex', 0, 2) === '1f8b' ? zlib.gunzipSync(payload) : undefined;
  }
}
