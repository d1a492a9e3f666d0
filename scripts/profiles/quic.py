"""A server or a client of QUIC by aioquic: serve ADDRESS PORT CERTIFICATE KEY [retry], or join
ADDRESS PORT [early] [move]. The client sends a line on a stream and wants it back. With early it
comes a second time, and says the line in its first flight (0-RTT). With move it goes on from
another port, with another connection ID."""

import asyncio
import socket
import ssl
import sys

from aioquic.asyncio import connect, serve
from aioquic.quic.configuration import QuicConfiguration

role, host, port, words = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]


async def echo(reader, writer):
    writer.write(await reader.read())
    writer.write_eof()


async def server():
    c = QuicConfiguration(is_client=False, alpn_protocols=["levee"])
    c.load_cert_chain(words[0], words[1])
    tickets = {}
    await serve(host, port, configuration=c, retry="retry" in words,
                session_ticket_handler=lambda t: tickets.__setitem__(t.ticket, t),
                session_ticket_fetcher=tickets.get,
                stream_handler=lambda r, w: asyncio.ensure_future(echo(r, w)))
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def said(connection):
    reader, writer = await connection.create_stream()
    writer.write(b"hello")
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), 8) == b"hello"


async def moved(connection):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.bind(("::", 0))
    connection.change_connection_id()
    await asyncio.get_running_loop().create_datagram_endpoint(lambda: connection, sock=s)


async def client():
    c = QuicConfiguration(is_client=True, alpn_protocols=["levee"], verify_mode=ssl.CERT_NONE)
    tickets = asyncio.Queue()
    async with connect(host, port, configuration=c,
                       session_ticket_handler=tickets.put_nowait) as connection:
        await said(connection)
        if "move" in words:
            await moved(connection)
            await said(connection)
        if "early" in words:
            c.session_ticket = await asyncio.wait_for(tickets.get(), 8)
    if "early" in words:
        async with connect(host, port, configuration=c, wait_connected=False) as connection:
            await said(connection)
            assert connection._quic.tls.early_data_accepted
    print("joined")


asyncio.run(server() if role == "serve" else client())
