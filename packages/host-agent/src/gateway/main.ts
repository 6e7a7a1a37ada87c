// The guest gateway: an unprivileged child process of the agent, one for each host (command.ts). It speaks with the
// guests of all machines, so that no code that runs as root parses what guests send. Its working directory is the
// gateway's folder, in which the agent places the guests' sockets. It ends when the agent's end of the channel closes.
import { Socket } from 'node:net';
import { openGuest } from './open-guest.ts';
import { CHANNEL_FD, encodeFrame, FrameReader, KIND } from './protocol.ts';
import { GatewaySessions } from './sessions.ts';
import { turnWriter } from './turn-writer.ts';

const channel = new Socket({ fd: CHANNEL_FD, readable: true, writable: true });
const send = turnWriter(channel);
const sessions = new GatewaySessions(openGuest, send);
const reader = new FrameReader();
channel.on('data', (chunk: Buffer) => {
  for (const frame of reader.read(chunk)) sessions.take(frame);
});
for (const event of ['end', 'close', 'error'] as const) channel.on(event, () => process.exit(0));
send(encodeFrame(KIND.ready, 0));
