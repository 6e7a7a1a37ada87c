# A program for tests of ports: HTTP with bodies, server-sent events and WebSockets. The first argument is the address,
# the second the port.
import base64, hashlib, struct, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHUNK = b"0123456789abcdef" * 4096


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body are two writes. Otherwise the second would wait for the acknowledgement of the first.
    disable_nagle_algorithm = True

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        path = self.path.split("?")[0]
        if self.headers.get("Upgrade", "").lower() == "websocket":
            return self.echo_messages()
        if path == "/events":
            return self.send_events()
        if path.startswith("/bytes/"):
            return self.send_bytes(int(path[7:]))
        if path == "/never":
            time.sleep(3600)
        self.answer(f"{self.command} {self.path} {self.headers.get('Host')}".encode())

    def do_POST(self):
        digest, size = hashlib.sha256(), 0
        left = int(self.headers.get("Content-Length", 0))
        while left > 0:
            data = self.rfile.read(min(left, 1 << 20))
            digest.update(data)
            size += len(data)
            left -= len(data)
        self.answer(f"{size} {digest.hexdigest()}".encode())

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "of_program=1; Domain=localhost")
        self.end_headers()
        self.wfile.write(body)

    def send_bytes(self, size):
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        while size > 0:
            self.wfile.write(CHUNK[:size])
            size -= min(size, len(CHUNK))

    def send_events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for number in range(3):
            self.wfile.write(f"data: {number}\n\n".encode())
            self.wfile.flush()
            time.sleep(0.2)
        self.close_connection = True

    def echo_messages(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                break
            code, size = head[0] & 15, head[1] & 127
            if size == 126:
                size = struct.unpack(">H", self.rfile.read(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", self.rfile.read(8))[0]
            mask, data = self.rfile.read(4), self.rfile.read(size)
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
            length = bytes([size]) if size < 126 else b"\x7e" + struct.pack(">H", size)
            self.wfile.write(bytes([0x80 | code]) + length + data)
            if code == 8:
                break
        self.close_connection = True


ThreadingHTTPServer.request_queue_size = 128
ThreadingHTTPServer.daemon_threads = True
ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
