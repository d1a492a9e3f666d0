"""Asks a game server what it is, by python-a2s: ADDRESS PORT."""

import sys

import a2s

info = a2s.info((sys.argv[1], int(sys.argv[2])), timeout=3.0)
print("joined", info.server_name)
