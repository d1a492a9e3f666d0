package client

import (
	"os"
	"path/filepath"

	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
)

// File is a file of the agent's.
func File(name string) string {
	dir := os.Getenv(sets.LibEnv)
	if dir == "" {
		dir = "/var/lib/levee"
	}
	return filepath.Join(dir, name)
}

// Ledger is the file of leases.
func Ledger() string { return File("agent.db") }

// IncidentsFile is the file of incidents.
func IncidentsFile() string { return File("incidents.json") }

// Notifications is the file of those who are told.
func Notifications() string { return File("notify.json") }

// Tokens is the file of what others prove with who they are.
func Tokens() string { return File("api-tokens.json") }

// Socket is where a running agent answers commands.
func Socket() string {
	dir := "/run/levee-agent"
	if run := os.Getenv(store.RunEnv); run != "" {
		dir = run + "-agent"
	}
	return filepath.Join(dir, "agent.sock")
}

// Rules is the file of live rules of others than detectors.
func Rules() string { return File("rules.json") }
