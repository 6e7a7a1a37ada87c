// Opens a page in the browser of the user.
import { spawn } from 'node:child_process';

/**
 * Opens the address in the browser, and does not wait for it. Returns false when this computer has no screen, or when
 * the address is not an HTTP address. Does not report a browser that fails to start, because the user also sees the
 * address.
 */
export function openBrowser(address: string): boolean {
  if (!URL.canParse(address) || !/^https?:$/.test(new URL(address).protocol)) return false;
  const [program, ...args] = opener();
  if (program === undefined) return false;
  const child = spawn(program, [...args, new URL(address).href], { stdio: 'ignore', detached: true });
  child.once('error', () => undefined);
  child.unref();
  return true;
}

/** Returns the command that opens an address, or an empty list. It must not pass the address to a shell. */
function opener(): string[] {
  const { DISPLAY, WAYLAND_DISPLAY } = process.env;
  if (process.platform === 'darwin') return ['open'];
  if (process.platform === 'win32') return ['rundll32', 'url.dll,FileProtocolHandler'];
  // Without a screen xdg-open would start a text-mode browser, whose output nobody would see.
  return DISPLAY || WAYLAND_DISPLAY ? ['xdg-open'] : [];
}
