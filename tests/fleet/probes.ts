// Requests that never give a replica a second chance: each has a connection of its own, and is sent once. So a broken
// connection is a request that a replica had accepted and did not answer. Only a refusal of a replica that is shutting
// down may be repeated.
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { type IncomingMessage, request as sendRequest } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import type { Fleet } from './bed/fleet.ts';

const MACHINE = { memory_mb: 128, rootfs_size_gb: 2 };
const FILE_BYTES = 1024 * 1024;
const PAUSE_MS = 100;

type Answer = { status: number; body: Buffer };
type Question = { method: string; path: string; json?: object; bytes?: Buffer; headers?: Record<string, string> };

export class Probes {
  readonly differences: string[] = [];
  /** How many requests were answered, and how many were refused and sent again. */
  answered = 0;
  refused = 0;
  readonly #url: string;
  readonly #key: string;
  #isOver = false;
  #loops: Promise<void>[] = [];
  #machineId = '';

  /** Makes an account that pays nothing, and a machine, and begins to send requests. */
  static async start(fleet: Fleet): Promise<Probes> {
    const account = { email: 'probes@fleet.test', tier: 'enterprise', billing_mode: 'unmetered' };
    const { api_key } = await fleet.operator('/admin/accounts', account);
    const probes = new Probes(fleet.url, String(api_key));
    const machineId = await probes.#create();
    probes.#machineId = machineId;
    probes.#loops = [
      probes.#repeat('a job', () => probes.#runJob(machineId)),
      probes.#repeat('an upload', () => probes.#upload(machineId)),
      probes.#repeat('a machine', async () => probes.#destroy(await probes.#create())),
    ];
    return probes;
  }

  private constructor(url: string, key: string) {
    this.#url = url;
    this.#key = key;
  }

  /** Waits for the answers that are still to come, and destroys the machine. */
  async stop(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#loops);
    await this.#destroy(this.#machineId);
  }

  async #repeat(what: string, probe: () => Promise<void>): Promise<void> {
    while (!this.#isOver) {
      await probe().catch((error: unknown) => this.differences.push(`${what} was dropped: ${error}`));
      await delay(PAUSE_MS);
    }
  }

  async #create(): Promise<string> {
    const headers = { 'idempotency-key': randomUUID() };
    const { body } = await this.#ask({ method: 'POST', path: '/v1/machines', json: MACHINE, headers });
    return JSON.parse(body.toString()).id;
  }

  async #destroy(machineId: string): Promise<void> {
    await this.#ask({ method: 'DELETE', path: `/v1/machines/${machineId}` });
  }

  async #runJob(machineId: string): Promise<void> {
    const said = randomUUID();
    const path = `/v1/machines/${machineId}/execs`;
    const json = { exec_id: randomUUID(), command: `sleep 1; echo ${said}` };
    await this.#ask({ method: 'POST', path, json });
    // A replica that shuts down answers a long wait early, with a job that still runs.
    const read = async () =>
      JSON.parse((await this.#ask({ method: 'GET', path: `${path}/${json.exec_id}?wait_ms=10000` })).body.toString());
    let job = await read();
    while (job.status === 'running') job = await read();
    const { body } = await this.#ask({ method: 'GET', path: `${path}/${json.exec_id}/output?stream=stdout` });
    const output = Buffer.from(JSON.parse(body.toString()).data, 'base64').toString();
    if (output !== `${said}\n`) throw new Error(`a job wrote ${JSON.stringify(output)} instead of ${said}`);
  }

  async #upload(machineId: string): Promise<void> {
    const bytes = randomBytes(FILE_BYTES);
    const path = `/v1/machines/${machineId}/files/content?path=/root/probe`;
    await this.#ask({ method: 'PUT', path, bytes });
    const { body } = await this.#ask({ method: 'GET', path });
    const [sum, expected] = [body, bytes].map((all) => createHash('sha256').update(all).digest('hex'));
    if (sum !== expected)
      throw new Error(`a file of ${body.length} bytes has the SHA-256 ${sum} instead of ${expected}`);
  }

  /** Throws when the connection breaks, and for an answer that is neither a success nor a refusal to be repeated. */
  async #ask(question: Question): Promise<Answer> {
    for (;;) {
      const answer = await this.#send(question);
      if (answer.status < 300) {
        this.answered++;
        return answer;
      }
      const text = answer.body.toString();
      if (answer.status !== 503 || !text.includes('"shutting_down"')) {
        throw new Error(`${question.method} ${question.path} answered ${answer.status} ${text}`);
      }
      this.refused++;
      await delay(PAUSE_MS);
    }
  }

  async #send({ method, path, json, bytes, headers }: Question): Promise<Answer> {
    const body = bytes ?? (json === undefined ? undefined : JSON.stringify(json));
    const type = bytes === undefined ? 'application/json' : 'application/octet-stream';
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    const sent = sendRequest(`${this.#url}${path}`, {
      method,
      // A connection for this request only.
      agent: false,
      headers: {
        authorization: `Bearer ${this.#key}`,
        ...(body === undefined ? {} : { 'content-type': type, 'content-length': Buffer.byteLength(body) }),
        ...headers,
      },
    });
    sent.once('response', resolve).once('error', reject).end(body);
    const response = await promise.catch((error: unknown) => {
      throw new Error(`${method} ${path} got no answer: ${error}`);
    });
    return { status: response.statusCode ?? 0, body: await buffer(response) };
  }
}
