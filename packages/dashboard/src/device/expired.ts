// Whether an error of the API says that the code has expired.
import { ApiProblem } from '../api/client.ts';

export const isExpired = (error: Error | null): boolean =>
  error instanceof ApiProblem && error.code === 'expired_token';
