"""A TCP proxy on loopback that loses answers: it cuts the connection when one begins to come back.

It reads the HTTP/2 frame headers that the server sends. Once armed, the first HEADERS or DATA frame
(the beginning of an answer, so the server has done its work) is not passed on; both sides are reset.
"""

from __future__ import annotations

import socket
import struct
import threading

DATA, HEADERS = 0, 1


class LossyProxy:
    def __init__(self, target_port: int):
        self._target = target_port
        self._armed = threading.Event()
        self.lost = threading.Event()  # set once an answer was lost
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "LossyProxy":
        return self

    def __exit__(self, *_: object) -> None:
        _close(self._listener)
        with self._lock:
            for each in self._sockets:
                _close(each)

    def lose_next_answer(self) -> None:
        self.lost.clear()
        self._armed.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                if self._listener.fileno() < 0:
                    return
                continue
            server.settimeout(None)
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets += [client, server]
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
            threading.Thread(target=self._answers, args=(server, client), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        _close(source)
        _close(sink)

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        try:
            while header := _exactly(server, 9):
                length, kind = int.from_bytes(header[:3], "big"), header[3]
                body = _exactly(server, length) if length else b""
                if kind in (DATA, HEADERS) and self._armed.is_set():
                    self._armed.clear()
                    self.lost.set()
                    _reset(client)
                    _reset(server)
                    return
                client.sendall(header + body)
        except OSError:
            pass
        _close(server)
        _close(client)


def _exactly(source: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = source.recv(length - len(parts))
        if not part:
            return b""
        parts += part
    return bytes(parts)


def _close(each: socket.socket) -> None:
    try:
        each.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    each.close()


def _reset(each: socket.socket) -> None:
    try:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass
    _close(each)
