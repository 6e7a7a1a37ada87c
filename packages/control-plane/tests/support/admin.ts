// Calls on the admin socket.
import { createTransport, readBytes } from '../../src/hosts/transport.ts';

export type AdminAnswer = { status: number; json: Record<string, string | number | null> };

export async function callAdmin(socketPath: string, path: string, body: object): Promise<AdminAnswer> {
  const transport = createTransport(socketPath);
  try {
    const answer = await transport.send({ method: 'POST', path, body, timeoutMs: 30_000 });
    return { status: answer.status, json: JSON.parse((await readBytes(answer)).toString()) };
  } finally {
    transport.close();
  }
}
