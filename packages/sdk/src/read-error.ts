// Reads the error from a response that is not successful.
import { errorOf, type SandbarError } from './service-errors.ts';

export async function readError(response: Response): Promise<SandbarError> {
  const text = await response.text().catch(() => '');
  let body: { code?: unknown; detail?: unknown } = {};
  try {
    body = JSON.parse(text) ?? {};
  } catch {
    // The response is not JSON; a proxy may have sent it. The error below still has its status.
  }
  const retryAfter = Number(response.headers.get('retry-after') ?? Number.NaN);
  return errorOf({
    status: response.status,
    code: typeof body.code === 'string' ? body.code : 'unknown',
    detail: typeof body.detail === 'string' ? body.detail : `HTTP ${response.status} ${response.statusText}`.trim(),
    requestId: response.headers.get('x-request-id'),
    retryAfterSec: Number.isFinite(retryAfter) ? retryAfter : null,
  });
}
