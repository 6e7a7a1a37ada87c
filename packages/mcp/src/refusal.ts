// The answer to an HTTP request that is refused before it reaches an MCP server. Its body is a JSON-RPC error, which MCP
// clients expect.

/** The first code of the range that JSON-RPC leaves to servers. */
const SERVER_ERROR = -32_000;

export function refusal(status: number, message: string, headers: Record<string, string> = {}): Response {
  const body = { jsonrpc: '2.0', error: { code: SERVER_ERROR, message }, id: null };
  return Response.json(body, { status, headers });
}
