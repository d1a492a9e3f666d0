# Sends to port 9, which its policy drops, and to port 10, which it passes, as the first thing that it
# does; with an argument, as a service, it then waits and answers on port 8002.
import os, socket, sys

s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if len(sys.argv) > 1:
    s.bind(("127.0.0.1", 8002))
for port in (9, 10):
    try:
        s.sendto(b"here I am", ("127.0.0.1", port))
    except PermissionError:
        pass
if len(sys.argv) > 1:
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
    while True:
        try:
            s.sendto(*s.recvfrom(2048))
        except PermissionError:
            pass
