# Sends packets to the name server as fast as it can. With the argument `dead`: questions for names that no server
# answers. With `garbage`: packets that are no questions.
import os, socket, struct, sys

ROUTE = [line.split() for line in open("/proc/net/route")][1:]
GATEWAY = next(socket.inet_ntoa(struct.pack("<I", int(r[2], 16))) for r in ROUTE if r[1] == "00000000")
DEAD = sys.argv[1] == "dead"
relay = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
count = 0
while True:
    count += 1
    name = b"%08x" % count
    question = struct.pack(">HHHHHH", count & 65535, 256, 1, 0, 0, 0) + b"\x08" + name + b"\x04dead\x04test\0\0\1\0\1"
    try:
        relay.sendto(question if DEAD else os.urandom(40), (GATEWAY, 53))
    except OSError:
        pass
