// How a tool of the server is described and registered: its schemas, what it may change, and what its run returns.
import type { McpServer, ServerContext, ToolAnnotations } from '@modelcontextprotocol/server';
import type { Client } from '@sandbar/sdk/client.ts';
import type { z } from 'zod';
import { listedInput, listedOutput } from './listed-schema.ts';
import type { RunningCalls } from './running-calls.ts';
import { toErrorResult } from './tool-errors.ts';

/** What a tool gets besides its arguments. */
export type ToolCall = {
  client: Client;
  /** Aborted when the caller cancels the call, the connection ends or the server ends. */
  signal: AbortSignal;
  /** Tells the caller that the call still runs, if the caller asked for progress. `elapsedSec` must grow. */
  reportProgress(elapsedSec: number, message: string): Promise<void>;
};

/** `data` is the structured content. `text` says the same for a reader. */
export type ToolResult<T> = { data: T; text: string };

export type Tool<Input extends z.ZodObject, Output extends z.ZodObject> = {
  name: string;
  title: string;
  /** Tells the agent what the tool does, when to use it, and its units and limits. */
  description: string;
  input: Input;
  output: Output;
  annotations: ToolAnnotations;
  run(args: z.output<Input>, call: ToolCall): Promise<ToolResult<z.input<Output>>>;
};

/** The server on which a tool is registered, the client with the account for its calls, and the list of its calls. */
export type ToolHost = { server: McpServer; client: Client; calls: RunningCalls };

export type RegisterTool = (host: ToolHost) => void;

/** The annotations of tools, by what a call may do. */
export const READS = { readOnlyHint: true, openWorldHint: false };
export const ADDS = { readOnlyHint: false, destructiveHint: false, idempotentHint: false, openWorldHint: false };
export const SETS = { ...ADDS, idempotentHint: true };
export const DESTROYS = { ...SETS, destructiveHint: true };
/** The tool runs any program, which may change the machine and use the internet. */
export const RUNS = { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true };

/**
 * Returns the function that registers the tool. When `run` throws, the caller gets a result with `isError`, so that the
 * agent can read the reason.
 */
export function defineTool<Input extends z.ZodObject, Output extends z.ZodObject>(
  tool: Tool<Input, Output>,
): RegisterTool {
  const { name, title, description, input, output, annotations } = tool;
  const schemas = { inputSchema: listedInput(input), outputSchema: listedOutput(output) };
  return ({ server, client, calls }) => {
    const handle = async (args: unknown, context: ServerContext) => {
      try {
        const signal = AbortSignal.any([context.mcpReq.signal, calls.signal]);
        const call = { client, signal, reportProgress: progressOf(context) };
        // The server has checked the arguments against `inputSchema`.
        const { data, text } = await calls.track(tool.run(args as z.output<Input>, call));
        return { content: [{ type: 'text' as const, text }], structuredContent: data };
      } catch (error) {
        return toErrorResult(error);
      }
    };
    server.registerTool(name, { title, description, ...schemas, annotations }, handle);
  };
}

function progressOf({ mcpReq }: ServerContext): ToolCall['reportProgress'] {
  return async (progress, message) => {
    const progressToken = mcpReq._meta?.progressToken;
    if (progressToken === undefined) return;
    const params = { progressToken, progress, message };
    // Ignore a broken connection here: the signal then ends the call.
    await mcpReq.notify({ method: 'notifications/progress', params }).catch(() => undefined);
  };
}
