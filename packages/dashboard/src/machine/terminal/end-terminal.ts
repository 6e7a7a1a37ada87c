// Ends a terminal and the programs in it.
import { ApiProblem, api, unwrap } from '../../api/client.ts';

/** Also resolves when the terminal or its machine has already ended. */
export async function endTerminal(machineId: string, terminalId: string): Promise<void> {
  const params = { path: { id: machineId, terminal_id: terminalId } };
  try {
    await unwrap(api.DELETE('/v1/machines/{id}/terminals/{terminal_id}', { params }));
  } catch (error) {
    if (!(error instanceof ApiProblem && [404, 409].includes(error.status))) throw error;
  }
}
