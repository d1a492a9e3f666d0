# Tells what has come to ports 9 and 10 within so many seconds, by sender: "NAME PORT COUNT".
import collections, select, socket, sys, time

sockets = {}
for port in (9, 10):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", port))
    sockets[s] = port
counts = collections.Counter()
end = time.monotonic() + float(sys.argv[1])
while (left := end - time.monotonic()) > 0:
    for s in select.select(sockets, [], [], left)[0]:
        counts[s.recv(64).decode(), sockets[s]] += 1
for (name, port), n in sorted(counts.items()):
    print(name, port, n)
