# Counts the datagrams that come to ports 9 and 10, in the files /run/witness.9 and /run/witness.10.
import os, select, socket

sockets = {}
for port in (9, 10):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", port))
    sockets[s] = port
counts = dict.fromkeys((9, 10), 0)
for port in counts:
    open(f"/run/witness.{port}", "w").write("0")
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
while True:
    for s in select.select(sockets, [], [])[0]:
        s.recv(2048)
        port = sockets[s]
        counts[port] += 1
        with open(f"/run/witness.{port}.new", "w") as f:
            f.write(str(counts[port]))
        os.rename(f"/run/witness.{port}.new", f"/run/witness.{port}")
