// The answer to an HTTP request that the server refuses before an MCP server handles it. Its body is a JSON-RPC error,
// because MCP clients expect that.

/** JSON-RPC reserves a range of error codes for servers. This is its first code. */
const SERVER_ERROR = -32_000;

export function refusal(status: number, message: string, headers: Record<string, string> = {}): Response {
  const body = { jsonrpc: '2.0', error: { code: SERVER_ERROR, message }, id: null };
  return Response.json(body, { status, headers });
}
