// A test double of Stripe. It passes requests on to stripe-mock, which checks them, and adds what stripe-mock lacks: it
// remembers customers, payments and idempotency keys, and it signs webhooks.
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, request as send } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after } from 'node:test';
import { Stripe } from 'stripe';
import type { ControlPlane } from '../../src/control-plane.ts';
import { startStripeMock } from './stripe-mock.ts';

export const STRIPE_KEY = 'sk_test_thekeyofthetests';
export const WEBHOOK_SECRET = 'whsec_thesecretofthetests';
export const WEBHOOK_PATH = '/v1/billing/webhooks/stripe';

export type StripeCall = { method: string; path: string; params: URLSearchParams; headers: IncomingMessage['headers'] };
type Reply = { status: number; body: object };

export class StripeDouble {
  readonly calls: StripeCall[] = [];
  /** Called before a request is answered. A returned reply is sent instead of the answer. */
  intercept: (call: StripeCall) => Promise<Reply | undefined> | Reply | undefined = () => undefined;
  /** The metadata of payments that exist. */
  readonly payments = new Map<string, Record<string, string>>();
  url = '';
  readonly #customers = new Set<string>();
  /** The customer that was made with each idempotency key. */
  readonly #answered = new Map<string, string>();
  #made = 0;
  #socketPath = '';

  /** Starts the double and stripe-mock. Both end after the tests of the file. */
  static async start(): Promise<StripeDouble> {
    const double = new StripeDouble();
    const folder = mkdtempSync(join(tmpdir(), 'sandbar-stripe-'));
    double.#socketPath = join(folder, 'mock.sock');
    const mock = await startStripeMock(double.#socketPath);
    const server = createServer((request, response) => {
      void double.#answer(request).then(({ status, body }) => {
        response.writeHead(status, { 'content-type': 'application/json', 'request-id': 'req_test' });
        response.end(JSON.stringify(body));
      });
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    double.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    after(async () => {
      server.close();
      server.closeAllConnections();
      const exited = once(mock, 'exit');
      mock.kill('SIGKILL');
      await exited;
      rmSync(folder, { recursive: true });
    });
    return double;
  }

  /** The configuration with which a replica uses this double. */
  get config() {
    return { payments: { secretKey: STRIPE_KEY, webhookSecret: WEBHOOK_SECRET, apiBase: new URL(this.url) } };
  }

  /** Requests to this path, oldest first. */
  callsTo(path: string): StripeCall[] {
    return this.calls.filter((call) => call.path === path);
  }

  async #answer(request: IncomingMessage): Promise<Reply> {
    const body = await text(request);
    const { method = '', url: path = '', headers } = request;
    const call: StripeCall = { method, path, params: new URLSearchParams(body), headers };
    this.calls.push(call);
    const intercepted = await this.intercept(call);
    if (intercepted) return intercepted;
    const reply = await this.#askMock(request, body);
    return reply.status === 200 ? this.#remember(call, reply) : reply;
  }

  async #askMock({ method, url, headers }: IncomingMessage, body: string): Promise<Reply> {
    const forwarded = send({ socketPath: this.#socketPath, method, path: url, headers }).end(body);
    const [response] = (await once(forwarded, 'response')) as [IncomingMessage];
    return { status: response.statusCode ?? 0, body: JSON.parse(await text(response)) };
  }

  #remember({ method, path, params, headers }: StripeCall, { status, body }: Reply): Reply {
    if (method === 'POST' && path === '/v1/customers') {
      const key = String(headers['idempotency-key']);
      const known = this.#answered.get(key);
      const id = known ?? `cus_${++this.#made}`;
      this.#answered.set(key, id);
      if (known === undefined) this.#customers.add(id);
      return { status, body: { ...body, id } };
    }
    if (method === 'POST' && path === '/v1/checkout/sessions') {
      const customer = params.get('customer') ?? '';
      if (!this.#customers.has(customer)) return missing('customer', customer);
      const id = `cs_test_${++this.#made}`;
      return { status, body: { ...body, id, url: `https://checkout.stripe.test/${id}` } };
    }
    const payment = /^\/v1\/payment_intents\/(\w+)$/.exec(path)?.[1];
    if (payment === undefined) return { status, body };
    const metadata = this.payments.get(payment);
    return metadata ? { status, body: { ...body, id: payment, metadata } } : missing('intent', payment);
  }

  /** Deletes all customers. As at Stripe, a repeated idempotency key still returns its deleted customer. */
  deleteCustomers(): void {
    this.#customers.clear();
  }
}

function missing(param: string, id: string): Reply {
  const error = {
    type: 'invalid_request_error',
    code: 'resource_missing',
    param,
    message: `No such ${param}: '${id}'`,
  };
  return { status: param === 'intent' ? 404 : 400, body: { error } };
}

/** Signs a body as Stripe does. `ageSec`: the age of the signature in seconds. */
export function signatureOf(payload: string, { secret = WEBHOOK_SECRET, ageSec = 0 } = {}): string {
  const timestamp = Math.floor(Date.now() / 1000) - ageSec;
  return new Stripe(STRIPE_KEY).webhooks.generateTestHeaderString({ payload, secret, timestamp });
}

/** Sends a body to the webhook route of a replica. */
export function postWebhook({ address }: ControlPlane, body: string, signature?: string): Promise<Response> {
  return fetch(`http://${address.host}:${address.port}${WEBHOOK_PATH}`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json; charset=utf-8',
      ...(signature === undefined ? {} : { 'stripe-signature': signature }),
    },
    body,
  });
}
