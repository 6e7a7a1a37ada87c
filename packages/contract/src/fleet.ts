// How a host joins the fleet, and how the control plane and the agents of joined hosts know each other.
//
// The control plane is the certificate authority of its fleet. A host makes a key and a certificate request, and sends
// the request with a join token to the control plane, which signs it. From then on every connection goes from the
// control plane to the agent, over TLS with certificates on both sides. The agent never calls the control plane.
import { type Static, Type } from 'typebox';
import { Uuid } from './fields.ts';
import { HOST_ADDRESS_PATTERN, HOST_TOKEN_PATTERN } from './patterns.ts';

export { HOST_ADDRESS_PATTERN, HOST_TOKEN_PATTERN };

/** How long a join token can be used, in seconds: by default, and at most. */
export const HOST_TOKEN_SEC = { default: 3600, max: 86_400 } as const;

/** The path at which hosts join, on the address of the API. It is not part of the public API. */
export const JOIN_PATH = '/fleet/v1/join';

/**
 * The names in certificates: the only subject alternative name, a URI. The agent accepts calls of the control plane
 * only. The control plane accepts, at the address of a host, only the certificate of that host.
 */
export const CONTROL_PLANE_NAME = 'spiffe://sandbar/control-plane';
export const hostNameOf = (hostId: string): string => `spiffe://sandbar/host/${hostId}`;

export const DEFAULT_AGENT_PORT = 7072;

const CertificateRequest = Type.String({ maxLength: 8192, description: 'A PKCS #10 request, PEM.' });
const Certificate = Type.String({ maxLength: 16_384, description: 'X.509, PEM.' });
const Authorities = Type.Array(Certificate, {
  minItems: 1,
  maxItems: 8,
  description: 'The authorities that the agent trusts, in place of those that it had.',
});

export const HostJoin = Type.Object(
  {
    token: Type.String({ pattern: HOST_TOKEN_PATTERN }),
    host_id: Uuid('The id that the agent made at its first start.'),
    name: Type.String({ maxLength: 255, description: 'A label for people, such as the host name.' }),
    address: Type.String({
      maxLength: 261,
      pattern: HOST_ADDRESS_PATTERN,
      description: 'HOST:PORT at which the control plane reaches the agent.',
    }),
    certificate_request: CertificateRequest,
  },
  { additionalProperties: false },
);
export type HostJoin = Static<typeof HostJoin>;

/** What the control plane gives to an agent, when it joins and when its certificate is renewed. */
export const AgentCertificate = Type.Object(
  { certificate: Certificate, authorities: Authorities },
  { additionalProperties: false },
);
export type AgentCertificate = Static<typeof AgentCertificate>;

/** The agent's answer to the first call of a renewal. Its key is a new one, which no one else ever sees. */
export const AgentCertificateRequest = Type.Object({ certificate_request: CertificateRequest });
export type AgentCertificateRequest = Static<typeof AgentCertificateRequest>;

/** Paths of the host API that exist on joined hosts only. */
export const CERTIFICATE_PATHS = {
  /** POST: makes a new key and answers with a request for it. */
  request: '/v1/certificate/request',
  /** PUT: the signed certificate. New connections use it, and those that are open stay. */
  certificate: '/v1/certificate',
} as const;
