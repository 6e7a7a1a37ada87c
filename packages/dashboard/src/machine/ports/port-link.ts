// The URL of a port for a browser. For a private port, it contains a token.
import { PORT_BOUNDS } from '@sandbar/contract/port-bounds.ts';
import { api, unwrap } from '../../api/client.ts';
import type { Port } from './ports-tab.tsx';

/** `expiresAt`: when the URL stops working; undefined for a public port. */
type PortLink = { url: string; expiresAt: string | undefined };

export async function linkOf(machineId: string, { port, access, url }: Port): Promise<PortLink> {
  if (access === 'public') return { url, expiresAt: undefined };
  const token = await unwrap(
    api.POST('/v1/machines/{id}/ports/{port}/token', {
      params: { path: { id: machineId, port: String(port) } },
      body: { expires_in_sec: PORT_BOUNDS.tokenSecDefault },
    }),
  );
  return { url: token.url, expiresAt: token.expires_at };
}
