"""A server over QUIC by aioquic: h3 or doq, ADDRESS PORT CERTIFICATE KEY. Each request of HTTP/3 gets
a line, each query of DNS (RFC 9250) an address."""

import asyncio
import socket
import sys

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated, StreamDataReceived


class Pages(QuicConnectionProtocol):
    http = None

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            self.http = H3Connection(self._quic)
        if self.http is None:
            return
        for e in self.http.handle_event(event):
            if isinstance(e, HeadersReceived):
                self.http.send_headers(e.stream_id, [(b":status", b"200")])
                self.http.send_data(e.stream_id, b"joined\n", end_stream=True)
                self.transmit()


class Names(QuicConnectionProtocol):
    def quic_event_received(self, event):
        if not isinstance(event, StreamDataReceived) or len(event.data) < 2 + 12:
            return
        query = event.data[2:]
        end = query.index(0, 12) + 5  # of the question
        header = query[:2] + bytes.fromhex("8580 0001 0001 0000 0000")
        record = bytes.fromhex("c00c 0001 0001 0000012c 0004 c0000201")
        answer = header + query[12:end] + record
        self._quic.send_stream_data(
            event.stream_id, len(answer).to_bytes(2, "big") + answer, end_stream=True
        )
        self.transmit()


async def server():
    alpn, protocol = (H3_ALPN, Pages) if sys.argv[1] == "h3" else (["doq"], Names)
    c = QuicConfiguration(is_client=False, alpn_protocols=alpn)
    c.load_cert_chain(sys.argv[4], sys.argv[5])
    s = await serve(sys.argv[2], int(sys.argv[3]), configuration=c, create_protocol=protocol)
    # The usual 208 KB hold some 90 Initials, and of forged ones budgets let 200 pass at once.
    force, room = 33, 4 << 20  # SO_RCVBUFFORCE
    s._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, force, room)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(server())
