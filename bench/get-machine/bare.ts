// The reference of bench/get-machine.ts: a Fastify route with one select by primary key, and nothing else.
import { createRequire } from 'node:module';
import pg from 'pg';

const require = createRequire(new URL('../../packages/control-plane/package.json', import.meta.url));
const fastify: typeof import('fastify').default = require('fastify');

const pool = new pg.Pool({ connectionString: process.env.SANDBAR_DATABASE_URL, max: 16 });
const server = fastify();
server.get<{ Params: { id: string } }>('/machines/:id', async (request) => {
  const { rows } = await pool.query('select * from machines where id = $1', [request.params.id]);
  return rows[0];
});
const { rows } = await pool.query('select id from machines limit 1');
const address = await server.listen({ host: '127.0.0.1', port: 0 });
process.on('SIGTERM', () => process.exit(0));
process.send?.({ url: `${address}/machines/${rows[0].id}`, headers: {} });
