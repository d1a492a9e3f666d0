package main

import (
	"os"
	"path/filepath"

	"levee/internal/dataplane"
)

// agentSocket is where a running agent answers commands.
func agentSocket() string {
	dir := "/run/levee-agent"
	if run := os.Getenv(dataplane.RunEnv); run != "" {
		dir = run + "-agent"
	}
	return filepath.Join(dir, "agent.sock")
}
