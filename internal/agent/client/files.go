package client

import (
	"os"
	"path/filepath"

	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
)

// File returns a file of the agent's.
func File(name string) string {
	dir := os.Getenv(sets.LibEnv)
	if dir == "" {
		dir = "/var/lib/levee"
	}
	return filepath.Join(dir, name)
}

// Ledger returns the file of leases.
func Ledger() string { return File("agent.db") }

// IncidentsFile returns the file of incidents.
func IncidentsFile() string { return File("incidents.json") }

// Notifications returns the file of those who are told.
func Notifications() string { return File("notify.json") }

// Tokens returns the file of what others prove with who they are.
func Tokens() string { return File("api-tokens.json") }

// Socket returns where a running agent answers commands.
func Socket() string {
	dir := "/run/levee-agent"
	if run := os.Getenv(store.RunEnv); run != "" {
		dir = run + "-agent"
	}
	return filepath.Join(dir, "agent.sock")
}

// Rules returns the file of live rules of others than detectors.
func Rules() string { return File("rules.json") }
