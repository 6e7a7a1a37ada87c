// Builds Ethernet frames with any sender address, as a machine that forges its address would send them.

export type Udp = { from: string; fromMac: string; to: string; toMac: string; text: string | Buffer; port?: number };
export type Arp = {
  fromMac: string;
  senderMac: string;
  sender: string;
  target: string;
  isReply?: boolean;
  text: string;
};

const BROADCAST = 'ff:ff:ff:ff:ff:ff';
export const UDP_PORT = 7777;

export function udpFrame({ from, fromMac, to, toMac, text, port = UDP_PORT }: Udp): Buffer {
  const payload = Buffer.from(text);
  const udp = Buffer.alloc(8);
  udp.writeUInt16BE(4000, 0);
  udp.writeUInt16BE(port, 2);
  udp.writeUInt16BE(8 + payload.length, 4);
  const ip = ipHeader(17, from, to, 8 + payload.length);
  return ethernet(toMac, fromMac, 0x0800, Buffer.concat([ip, udp, payload]));
}

/** Builds an ICMP echo request. The reply to it contains the same text. */
export function pingFrame({ from, fromMac, to, toMac, text }: Omit<Udp, 'port' | 'text'> & { text: string }): Buffer {
  const icmp = Buffer.concat([Buffer.from([8, 0, 0, 0, 0, 1, 0, 1]), Buffer.from(text.length % 2 ? `${text} ` : text)]);
  icmp.writeUInt16BE(checksum(icmp), 2);
  return ethernet(toMac, fromMac, 0x0800, Buffer.concat([ipHeader(1, from, to, icmp.length), icmp]));
}

/** Builds an ARP frame with the text in its padding. */
export function arpFrame({ fromMac, senderMac, sender, target, isReply = false, text }: Arp): Buffer {
  const head = Buffer.from([0, 1, 8, 0, 6, 4, 0, isReply ? 2 : 1]);
  const body = [macBytes(senderMac), ipBytes(sender), Buffer.alloc(6), ipBytes(target), Buffer.from(text)];
  return ethernet(BROADCAST, fromMac, 0x0806, Buffer.concat([head, ...body]));
}

export function ethernet(toMac: string, fromMac: string, etherType: number, body: Buffer): Buffer {
  const type = Buffer.alloc(2);
  type.writeUInt16BE(etherType);
  const frame = Buffer.concat([macBytes(toMac), macBytes(fromMac), type, body]);
  return frame.length >= 60 ? frame : Buffer.concat([frame, Buffer.alloc(60 - frame.length)]);
}

/** Returns the frame with a VLAN tag (VLAN 1) added. */
export function tagged(frame: Buffer): Buffer {
  return Buffer.concat([frame.subarray(0, 12), Buffer.from([0x81, 0, 0, 1]), frame.subarray(12)]);
}

function ipHeader(protocol: number, from: string, to: string, length: number): Buffer {
  const ip = Buffer.alloc(20);
  ip[0] = 0x45;
  ip.writeUInt16BE(20 + length, 2);
  ip[8] = 64;
  ip[9] = protocol;
  ipBytes(from).copy(ip, 12);
  ipBytes(to).copy(ip, 16);
  ip.writeUInt16BE(checksum(ip), 10);
  return ip;
}

function ipBytes(ip: string): Buffer {
  return Buffer.from(ip.split('.').map(Number));
}

function macBytes(mac: string): Buffer {
  return Buffer.from(mac.replaceAll(':', ''), 'hex');
}

function checksum(header: Buffer): number {
  let sum = 0;
  for (let at = 0; at < header.length; at += 2) sum += header.readUInt16BE(at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}
