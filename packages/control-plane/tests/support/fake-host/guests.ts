// The guests of a fake host. They answer calls and open streams as a test has programmed them.
import type { Duplex } from 'node:stream';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { GuestCallName, GuestStreamName } from '@sandbar/contract/guest-calls.ts';
import type { FastifyInstance } from 'fastify';
import { addGuestRoutes as addAgentRoutes } from '../../../../host-agent/src/http/guest-routes.ts';
import { addPortRoute } from '../../../../host-agent/src/http/port-route.ts';
import type { Calls, Operation } from './calls.ts';
import { type FakeState, machineOf } from './state.ts';

/** What the guests of this host answer to a call. `params` is the JSON of the request. Throws a refusal. */
export type FakeCall = (machineId: string, params: never) => unknown;
/** A stream that a fake guest has opened. `duplex` is the guest's end of it. */
export type FakeStream = { head: unknown; duplex: Duplex; result: Promise<unknown> };
export type FakeOpen = (machineId: string, params: never) => FakeStream | Promise<FakeStream>;

/** What guests answer, by the name of the call or stream. Guests refuse all other names as unknown. */
export type GuestProgram = {
  calls: Partial<Record<GuestCallName, FakeCall>>;
  streams: Partial<Record<GuestStreamName, FakeOpen | undefined>>;
};

export function addGuestRoutes(server: FastifyInstance, host: FakeState, program: GuestProgram, calls: Calls): void {
  const guests = { get: (machineId: string) => guestOf(host, program, calls, machineId) };
  addAgentRoutes(server, guests);
  addPortRoute(server, guests, (error) =>
    error instanceof ServiceError ? error : new ServiceError('internal_error', String(error)),
  );
}

function guestOf(host: FakeState, program: GuestProgram, calls: Calls, machineId: string) {
  const { report } = machineOf(host, machineId);
  const check = (operation: Operation, known: unknown) => {
    calls.countGuestCall(operation, machineId);
    if (report.status !== 'running') throw new ServiceError('conflict', `the machine is ${report.status}, not running`);
    if (!known) throw new ServiceError('not_found', 'no such request');
  };
  return {
    callGuest: async (name: GuestCallName, params: string) => {
      const call = program.calls[name];
      check('callGuest', call);
      return JSON.stringify(await call?.(machineId, JSON.parse(params) as never));
    },
    openStream: async (name: GuestStreamName, params: string) => {
      const open = program.streams[name];
      check('openStream', open);
      if (!open) throw new Error('unreachable');
      const { head, duplex, result } = await open(machineId, JSON.parse(params) as never);
      return { head: JSON.stringify(head), duplex, result: result.then((value) => JSON.stringify(value)) };
    },
  };
}
