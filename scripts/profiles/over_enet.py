"""A server of ENet, as games have it, and a client that joins and is answered.

over_enet.py serve ADDRESS PORT     until its input ends
over_enet.py join ADDRESS PORT
"""
import sys
import threading

import enet


def serve(at, port):
    host = enet.Host(enet.Address(at.encode(), port), 1024, 1, 0, 0)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    print("ready", flush=True)
    while not ended.is_set():
        event = host.service(50)
        if event.type == enet.EVENT_TYPE_RECEIVE:
            event.peer.send(0, enet.Packet(event.packet.data, enet.PACKET_FLAG_RELIABLE))


def join(at, port):
    host = enet.Host(None, 1, 1, 0, 0)
    peer = host.connect(enet.Address(at.encode(), port), 1)
    for _ in range(400):  # 20 seconds
        event = host.service(50)
        if event.type == enet.EVENT_TYPE_CONNECT:
            peer.send(0, enet.Packet(b"hello", enet.PACKET_FLAG_RELIABLE))
        elif event.type == enet.EVENT_TYPE_RECEIVE:
            print("joined" if event.packet.data == b"hello" else event.packet.data)
            return
        elif event.type == enet.EVENT_TYPE_DISCONNECT:
            sys.exit("disconnected")
    sys.exit("nobody answers")


{"serve": serve, "join": join}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
