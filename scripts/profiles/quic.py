"""A server or a client of QUIC by aioquic: serve ADDRESS PORT CERTIFICATE KEY [retry], or join
ADDRESS PORT. The client sends a line on a stream and wants it back."""

import asyncio
import ssl
import sys

from aioquic.asyncio import connect, serve
from aioquic.quic.configuration import QuicConfiguration

role, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])


async def echo(reader, writer):
    writer.write(await reader.read())
    writer.write_eof()


async def server():
    c = QuicConfiguration(is_client=False, alpn_protocols=["levee"])
    c.load_cert_chain(sys.argv[4], sys.argv[5])
    await serve(host, port, configuration=c, retry="retry" in sys.argv,
                stream_handler=lambda r, w: asyncio.ensure_future(echo(r, w)))
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def client():
    c = QuicConfiguration(is_client=True, alpn_protocols=["levee"], verify_mode=ssl.CERT_NONE)
    async with connect(host, port, configuration=c) as connection:
        reader, writer = await connection.create_stream()
        writer.write(b"hello")
        writer.write_eof()
        if await asyncio.wait_for(reader.read(), 8) == b"hello":
            print("joined")


asyncio.run(server() if role == "serve" else client())
