// Root in a guest can replace the guest agent. These tests freeze PID 1 of a real machine and answer the host in its
// place, with output that breaks the protocol. The host must end that job, store next to nothing of its output, and go
// on.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Exec } from '@sandbar/contract/exec.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import { bytesBelow } from './support/host.ts';
import { createMachine, destroyMachine, expectStatus, HOME, pidOf, sh, startExec, until } from './support/service.ts';

/**
 * Python that takes over the port of the guest agent. The host first asks for the list of jobs, and the program answers
 * with the job whose id is its argument. Then the host asks for the output of that job, and the program answers with bytes that
 * it made itself. It sleeps first, so that the agent can answer the request that starts this job. `speak`: Python that
 * goes on after the greeting of a session.
 */
const takeOver = (speak: string) => `
import ctypes, json, os, struct, sys, time
time.sleep(1)
libc = ctypes.CDLL(None)
job = sys.argv[1]
port = next(int(f) for f in os.listdir("/proc/1/fd") if "vport" in os.readlink("/proc/1/fd/" + f))
fd = libc.syscall(438, libc.syscall(434, 1, 0), port, 0)
os.set_blocking(fd, True)
os.makedirs("/sys/fs/cgroup/frozen", exist_ok=True)
open("/sys/fs/cgroup/frozen/cgroup.procs", "w").write("1")
open("/sys/fs/cgroup/frozen/cgroup.freeze", "w").write("1")
while "frozen 1" not in open("/sys/fs/cgroup/frozen/cgroup.events").read(): time.sleep(0.01)

def send(data):
  while data: data = data[os.write(fd, data[:16384]):]

greeting = b"sandbar-host-opens-a-new-session"
send(b"\\xff" * 1000)  # the host ends the session of the agent and opens another
seen = b""
while True:
  at = seen.find(greeting)
  if at >= 0 and len(seen) >= at + 72: break
  seen += os.read(fd, 65536)
token, epoch = seen[at + 32:at + 64], seen[at + 64:at + 72]
seen = seen[at + 72:]
status = dict(id=job, status="running", stdout_bytes=0, stderr_bytes=0, truncated=False)
jobs = json.dumps(dict(jobs=[status])).encode()
${speak}
`;

/** Speaks HTTP/2 like an older guest agent. `flood`: a Python expression. */
const speakHttp2 = (flood: string) => `
def http2(kind, flags, stream, payload=b""):
  return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload
def output(length, offset): return struct.pack(">IIQ", 1 << 24, length, offset) + b"x" * length
send(token + epoch + http2(4, 0, 0))
while len(seen) < 24: seen += os.read(fd, 65536)
seen = seen[24:]  # the preface of HTTP/2
answered = 0
while True:
  while len(seen) < 9 or len(seen) < 9 + int.from_bytes(seen[:3], "big"): seen += os.read(fd, 65536)
  length, kind, flags, stream = int.from_bytes(seen[:3], "big"), seen[3], seen[4], int.from_bytes(seen[5:9], "big")
  seen = seen[9 + length:]
  if kind == 4 and not flags & 1: send(http2(4, 1, 0))
  if kind != 1: continue
  answered += 1
  send(http2(1, 4, stream, b"\\x88"))
  if answered == 1: send(http2(0, 1, stream, jobs))
  elif answered == 2: send(http2(0, 0, stream, ${flood}))
`;

/** Speaks frames. `flood`: a Python expression for frames of the call `call`. */
const speakFrames = (flood: string) => `
def frame(kind, call, payload): return struct.pack(">IBI", len(payload), kind, call) + payload
def output(length, offset): return frame(66, call, struct.pack(">Q", offset) + b"x" * length)
send(token + bytes(byte ^ 255 for byte in epoch))
while True:
  while len(seen) < 9 or len(seen) < 9 + int.from_bytes(seen[:4], "big"): seen += os.read(fd, 65536)
  length, kind, call = struct.unpack(">IBI", seen[:9])
  request = seen[11:9 + length]
  seen = seen[9 + length:]
  if kind != 1: continue
  if request.startswith(b"GET /jobs/"): send(frame(65, call, struct.pack(">H", 200)) + ${flood})
  else: send(frame(64, call, struct.pack(">H", 200) + jobs))
`;

describe('a guest whose root answers in place of the guest agent', () => {
  let neighbour: Machine;
  before(async () => {
    neighbour = await createMachine();
  });
  after(() => destroyMachine(neighbour.id));

  for (const [what, speak] of [
    ['repeats output', speakFrames('output(4000, 0) * 4')],
    ['sends frames without a byte', speakFrames('output(0, 0) * 1000')],
    ['repeats output over HTTP/2', speakHttp2('output(4000, 0) * 4')],
    ['sends frames without a byte over HTTP/2', speakHttp2('output(0, 0) * 1000')],
  ] as const) {
    it(`and ${what} loses the job, fills nothing and harms no other machine (RES-6)`, async () => {
      const agent = pidOf('host-agent');
      const hostile = await createMachine();
      try {
        const id = randomUUID();
        await startExec(hostile.id, { exec_id: id, argv: ['python3', '-c', takeOver(speak), id] });
        const job = () => expectStatus<Exec>(200, 'GET', `/v1/machines/${hostile.id}/execs/${id}`);
        await until('the job is given up', async () => (await job()).status === 'lost', 60_000);
        const complaints = () => readFileSync(join(HOME, 'logs', 'host-agent.log'), 'utf8').split('\n');
        await until('the host has seen the flood', () => complaints().some((line) => line.includes(id)));
        const jobs = join(HOME, 'machines', hostile.id, 'jobs');
        assert.ok(existsSync(jobs) && bytesBelow(jobs) < 16_384, `${bytesBelow(jobs)} bytes`);
        assert.equal((await sh(neighbour.id, 'echo well')).stdout, 'well\n');
        assert.equal(pidOf('host-agent'), agent, 'the same agent all the time');
      } finally {
        await destroyMachine(hostile.id);
      }
    });
  }
});
