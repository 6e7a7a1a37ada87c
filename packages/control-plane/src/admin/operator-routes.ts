// The operator's routes for the dashboard, under /admin/v1/. They are not part of the public API. Only a session of an
// operator account may use them, and only within 15 minutes after its password was checked. They call the same
// functions as the routes of the admin socket. SANDBAR_ADMIN_HTTP=0 leaves them out.
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { addOperatorAccountRoutes } from './operator-accounts.ts';
import { addOperatorFleetRoutes } from './operator-fleet.ts';
import { addOperatorHealthRoutes } from './operator-health.ts';
import { addOperatorHostRoutes } from './operator-hosts.ts';

export function addOperatorRoutes(server: FastifyInstance, app: App): void {
  addOperatorAccountRoutes(server, app);
  addOperatorHostRoutes(server, app);
  addOperatorFleetRoutes(server, app);
  addOperatorHealthRoutes(server, app);
}
