// Parses the name queries of machines and builds new queries from them (RFC 1035, RFC 6891). A machine's own bytes
// never reach a name server: only a question that was parsed completely does, in a message that we write. dns-packet
// and other libraries turn names into text and lose bytes on the way, so names stay bytes here.

const HEADER_BYTES = 12;
/** RFC 1035, 2.3.4. */
const MAX_NAME_BYTES = 255;
const MAX_LABEL_BYTES = 63;
/** The longest query that is accepted, in bytes. It has room for the longest name with padding and other options. */
export const MAX_QUERY_BYTES = 1232;
/** The largest answer that a machine without EDNS can receive over UDP (RFC 1035, 2.3.4). */
const PLAIN_ANSWER_BYTES = 512;
/**
 * The largest UDP answer that the relay allows name servers to send. It fits into one packet on every path (DNS flag
 * day 2020).
 */
const MAX_UDP_ANSWER_BYTES = 1232;

/** Bits of the second header word. */
const FLAG = { response: 0x8000, truncated: 0x0200, recurse: 0x0100, authentic: 0x0020, unchecked: 0x0010 };
const OPCODE_MASK = 0x7800;
const RCODE = { formatError: 1, notImplemented: 4, refused: 5 } as const;
const CLASS_INTERNET = 1;
const TYPE_OPT = 41;
/**
 * Types from 128 to 255 do not stand for data: they are requests such as AXFR, IXFR and ANY, or parts of the protocol
 * (RFC 6895, 3.1).
 */
const FIRST_META_TYPE = 128;
const LAST_META_TYPE = 255;
/** In the OPT record: the machine wants DNSSEC records. */
const DNSSEC_OK = 0x8000;
/** An OPT record without options: the root's name, type, size, four bytes of flags and the length of the options. */
const OPT_BYTES = 11;

export type Query = {
  id: number;
  /** The flags of the machine's query that are passed on to the name server. */
  flags: number;
  /** Name, type and class as in the message. */
  question: Buffer;
  /** The EDNS values of the machine's query; undefined when the query has no EDNS. */
  edns: { answerBytes: number; isDnssecOk: boolean } | undefined;
};

/** A query to pass on, or an answer that refuses it. */
export type Read = { query: Query } | { refusal: Buffer };

/**
 * Parses the message of a machine. Returns undefined for a message that gets no answer, because it is too short for a
 * query or is itself an answer.
 */
export function readQuery(message: Buffer): Read | undefined {
  if (message.length < HEADER_BYTES) return undefined;
  const flags = message.readUInt16BE(2);
  if (flags & FLAG.response) return undefined;
  const refuse = (rcode: number, question?: Buffer) => ({ refusal: refusalOf(message, rcode, question) });
  if (flags & OPCODE_MASK) return refuse(RCODE.notImplemented);
  const [questions, answers, authorities, additions] = [4, 6, 8, 10].map((at) => message.readUInt16BE(at));
  const hasGoodCounts = questions === 1 && answers === 0 && authorities === 0 && (additions === 0 || additions === 1);
  if (!hasGoodCounts || flags & FLAG.truncated || message.length > MAX_QUERY_BYTES) return refuse(RCODE.formatError);
  const end = questionEnd(message);
  if (end === undefined) return refuse(RCODE.formatError);
  const edns = additions === 1 ? readEdns(message, end) : undefined;
  if (additions === 1 ? edns === undefined : end !== message.length) return refuse(RCODE.formatError);
  const question = Buffer.from(message.subarray(HEADER_BYTES, end));
  const type = message.readUInt16BE(end - 4);
  const isData = type !== 0 && type !== TYPE_OPT && (type < FIRST_META_TYPE || type > LAST_META_TYPE);
  if (!isData || message.readUInt16BE(end - 2) !== CLASS_INTERNET) return refuse(RCODE.refused, question);
  return {
    query: {
      id: message.readUInt16BE(0),
      flags: flags & (FLAG.recurse | FLAG.authentic | FLAG.unchecked),
      question,
      edns,
    },
  };
}

/** Returns the message for a name server. The server's answer must have the same `id`. */
export function writeQuery({ flags, question, edns }: Query, id: number): Buffer {
  const opt = Buffer.alloc(edns ? OPT_BYTES : 0);
  if (edns) {
    opt.writeUInt16BE(TYPE_OPT, 1);
    opt.writeUInt16BE(edns.answerBytes, 3);
    opt.writeUInt16BE(edns.isDnssecOk ? DNSSEC_OK : 0, 7);
  }
  return Buffer.concat([header(id, flags, { questions: 1, additions: edns ? 1 : 0 }), question, opt]);
}

/**
 * Returns a name server's message as the answer for the machine, or undefined when it is no answer to this query. `id`:
 * the id of the query that was sent to the name server.
 */
export function readAnswer(message: Buffer, query: Query, id: number): Buffer | undefined {
  const end = HEADER_BYTES + query.question.length;
  if (message.length < end || message.readUInt16BE(0) !== id) return undefined;
  const flags = message.readUInt16BE(2);
  if (!(flags & FLAG.response) || flags & OPCODE_MASK || message.readUInt16BE(4) !== 1) return undefined;
  if (!isSameQuestion(message.subarray(HEADER_BYTES, end), query.question)) return undefined;
  const answer = Buffer.from(message);
  answer.writeUInt16BE(query.id, 0);
  return answer;
}

/**
 * Returns an answer that fits into one datagram. An answer that is too long is replaced by an empty one with the flag
 * `truncated`, so that the machine asks again over TCP.
 */
export function fitDatagram(answer: Buffer, query: Query): Buffer {
  if (answer.length <= (query.edns?.answerBytes ?? PLAIN_ANSWER_BYTES)) return answer;
  const flags = answer.readUInt16BE(2) | FLAG.truncated;
  return Buffer.concat([header(query.id, flags, { questions: 1, additions: 0 }), query.question]);
}

/** Returns where the only question ends, or undefined when its name is not a plain sequence of labels. */
function questionEnd(message: Buffer): number | undefined {
  let at = HEADER_BYTES;
  for (;;) {
    const length = message[at];
    // A compression pointer has a first byte above the longest label length. Refuse it: before the first name there is
    // nothing that it could point to.
    if (length === undefined || length > MAX_LABEL_BYTES) return undefined;
    at += 1 + length;
    if (at - HEADER_BYTES > MAX_NAME_BYTES) return undefined;
    if (length === 0) break;
  }
  return at + 4 <= message.length ? at + 4 : undefined;
}

/** Reads the message's last record, which must be the OPT record of EDNS version 0. */
function readEdns(message: Buffer, at: number): Query['edns'] {
  if (message.length < at + OPT_BYTES || message.length !== at + OPT_BYTES + message.readUInt16BE(at + 9))
    return undefined;
  const isOpt = message[at] === 0 && message.readUInt16BE(at + 1) === TYPE_OPT && message[at + 6] === 0;
  if (!isOpt) return undefined;
  const answerBytes = Math.min(Math.max(message.readUInt16BE(at + 3), PLAIN_ANSWER_BYTES), MAX_UDP_ANSWER_BYTES);
  return { answerBytes, isDnssecOk: (message.readUInt16BE(at + 7) & DNSSEC_OK) !== 0 };
}

/**
 * Returns an answer with nothing but an error code, and the question if it could be read: resolvers ignore an answer
 * without their question. It is never longer than the message that it answers.
 */
function refusalOf(message: Buffer, rcode: number, question?: Buffer): Buffer {
  const flags = FLAG.response | (message.readUInt16BE(2) & (OPCODE_MASK | FLAG.recurse)) | rcode;
  const counts = { questions: question ? 1 : 0, additions: 0 };
  return Buffer.concat([header(message.readUInt16BE(0), flags, counts), question ?? Buffer.alloc(0)]);
}

function header(id: number, flags: number, counts: { questions: number; additions: number }): Buffer {
  const bytes = Buffer.alloc(HEADER_BYTES);
  bytes.writeUInt16BE(id, 0);
  bytes.writeUInt16BE(flags, 2);
  bytes.writeUInt16BE(counts.questions, 4);
  bytes.writeUInt16BE(counts.additions, 10);
  return bytes;
}

/** Names are equal whatever the case of their ASCII letters. Type and class must be equal as they are. */
function isSameQuestion(one: Buffer, other: Buffer): boolean {
  const name = (question: Buffer) =>
    question
      .subarray(0, -4)
      .toString('latin1')
      .replace(/[A-Z]/g, (c) => c.toLowerCase());
  return one.subarray(-4).equals(other.subarray(-4)) && name(one) === name(other);
}
