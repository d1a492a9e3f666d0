"""Asks a game server what it is, who plays and by which rules, by python-a2s: ADDRESS PORT."""

import sys

import a2s

at = (sys.argv[1], int(sys.argv[2]))
info = a2s.info(at, timeout=3.0)
a2s.players(at, timeout=3.0)
a2s.rules(at, timeout=3.0)
print("joined", info.server_name)
