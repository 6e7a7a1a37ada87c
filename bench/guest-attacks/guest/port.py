# Floods the host through the port of the guest agent. As root, it copies the file descriptor of the port from the guest
# agent, which is PID 1, and freezes the agent. The first argument is the kind of flood:
#   repeats      output that always begins at offset 0
#   empty        output frames without a byte
#   tiny-frames  correct output in frames of one byte
#   tiny-data    HTTP/2 data frames of one byte
#   pings        HTTP/2 pings
#   garbage      random bytes as soon as a session is open
#   stale        never answers the greeting, but sends bytes without end
#   sessions     ends every session as soon as it is open
# The host's first request in a session is for the list of jobs. The program answers it with the jobs whose ids are
# its other arguments, so that the host asks for their output.
import ctypes, json, os, select, struct, sys, time

FLOOD = sys.argv[1]
GREETING = b"sandbar-host-opens-a-new-session"
GREETED = len(GREETING) + 32 + 8  # followed by token and epoch
DATA, HEADERS, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 4, 6, 7, 8
WINDOW = 65535
TABLE = 1 << 16


class NewSession(Exception):
    pass


def http2(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def output(length, offset):
    return struct.pack(">IIQ", 1 << 24, length, offset) + b"x" * length


class Port:
    def __init__(self, fd):
        self.fd, self.seen = fd, b""
        os.set_blocking(fd, False)
        self.poll = select.poll()
        self.poll.register(fd, select.POLLIN | select.POLLOUT)

    def read(self):
        try:
            self.seen += os.read(self.fd, 65536)
        except BlockingIOError:
            pass
        at = self.seen.rfind(GREETING)
        if at >= 0 and len(self.seen) >= at + GREETED:
            raise NewSession

    def send(self, data):
        view = memoryview(data)
        while view:
            self.read()
            try:
                view = view[os.write(self.fd, view[:32768]):]
            except OSError:
                time.sleep(0.001)

    def greeting(self):
        """Waits for a greeting. Returns token and epoch."""
        while True:
            try:
                self.read()
                time.sleep(0.001)
            except NewSession:
                at = self.seen.rfind(GREETING)
                echo = self.seen[at + len(GREETING):at + GREETED]
                self.seen = self.seen[at + GREETED:]
                return echo

    def frames(self):
        self.read()
        while len(self.seen) >= 9:
            size = 9 + int.from_bytes(self.seen[:3], "big")
            if len(self.seen) < size:
                return
            frame, self.seen = self.seen[:size], self.seen[size:]
            yield frame[3], frame[4], int.from_bytes(frame[5:9], "big") & 0x7FFFFFFF, frame[9:]


class TinyFrames:
    """Output of one byte a frame. Only the third byte of the offset and those above differ between two tables."""

    table = bytearray()

    def __init__(self):
        self.high, self.ready = 0, b""

    def take(self, size):
        if not self.ready:
            for place, shift in ((13, 16), (12, 24)):
                TinyFrames.table[place::17] = bytes([(self.high * TABLE >> shift) & 255]) * TABLE
            self.high, self.ready = self.high + 1, memoryview(bytes(TinyFrames.table))
        piece, self.ready = self.ready[:size], self.ready[size:]
        return bytes(piece)


if FLOOD.startswith("tiny"):
    TinyFrames.table = bytearray(b"".join(output(1, at) for at in range(TABLE)))


def take_port():
    libc = ctypes.CDLL(None)
    number = next(int(f) for f in os.listdir("/proc/1/fd") if "vport" in os.readlink("/proc/1/fd/" + f))
    fd = libc.syscall(438, libc.syscall(434, 1, 0), number, 0)  # pidfd_getfd, pidfd_open
    os.makedirs("/sys/fs/cgroup/frozen", exist_ok=True)
    open("/sys/fs/cgroup/frozen/cgroup.procs", "w").write("1")
    open("/sys/fs/cgroup/frozen/cgroup.freeze", "w").write("1")
    while "frozen 1" not in open("/sys/fs/cgroup/frozen/cgroup.events").read():
        time.sleep(0.01)
    return Port(fd)


def jobs():
    status = dict(status="running", stdout_bytes=0, stderr_bytes=0, truncated=False)
    return json.dumps(dict(jobs=[dict(id=id, **status) for id in sys.argv[2:]])).encode()


def session(port):
    """Speaks with the host until it opens another session."""
    echo = port.greeting()
    if FLOOD == "stale":
        while True:
            port.send(b"\xff" * 65536)
    port.send(echo + http2(SETTINGS, 0, 0))
    if FLOOD == "sessions":
        port.send(http2(GOAWAY, 0, 0, bytes(8)))
    if FLOOD == "garbage":
        noise = os.urandom(65536)
        while True:
            port.send(noise)
    while len(port.seen) < 24:
        port.read()
    port.seen = port.seen[24:]  # the preface of HTTP/2
    streams, windows, initial, listed = {}, {0: WINDOW}, WINDOW, False
    while True:
        for kind, flags, stream, payload in port.frames():
            if kind == SETTINGS and not flags & 1:
                for at in range(0, len(payload), 6):
                    if payload[at:at + 2] == b"\0\4":
                        initial = int.from_bytes(payload[at + 2:at + 6], "big")
                port.send(http2(SETTINGS, 1, 0))
            elif kind == WINDOW_UPDATE:
                windows[stream] = windows.get(stream, 0) + int.from_bytes(payload, "big")
            elif kind == HEADERS and not listed:
                listed = True
                port.send(http2(HEADERS, 4, stream, b"\x88") + http2(DATA, 1, stream, jobs()))
            elif (kind == HEADERS and flags & 1) or (kind == DATA and b"max_output_bytes" in payload):
                port.send(http2(HEADERS, 4, stream, b"\x88"))
                streams[stream] = TinyFrames()
                windows[stream] = windows.get(stream, 0) + initial
            elif kind == DATA and flags & 1:
                port.send(http2(HEADERS, 5, stream, b"\x88"))
        if FLOOD == "pings":
            port.send(http2(PING, 0, 0, bytes(8)) * 1000)
        for stream, tiny in list(streams.items()):
            if FLOOD == "repeats":
                port.send(http2(DATA, 0, stream, output(16000, 0)))
            elif FLOOD == "empty":
                port.send(http2(DATA, 0, stream, output(0, 0) * 1000))
            elif FLOOD.startswith("tiny"):
                piece = tiny.take(min(16384, windows[0], windows[stream]))
                windows[0] -= len(piece)
                windows[stream] -= len(piece)
                if FLOOD == "tiny-frames":
                    port.send(http2(DATA, 0, stream, piece))
                else:
                    port.send(b"".join(http2(DATA, 0, stream, piece[at:at + 1]) for at in range(len(piece))))
        time.sleep(0 if streams or FLOOD == "pings" else 0.001)


time.sleep(1)  # the agent answers the request that started this job
port = take_port()
os.write(port.fd, b"\xff" * 1000)  # the host ends the session of the agent and opens another
while True:
    try:
        session(port)
    except NewSession:
        pass
