package agent_test

import (
	"testing"

	"levee/internal/agent"
	"levee/internal/agent/api/apitest"
	"levee/internal/agent/daemon"
	"levee/internal/agent/dashboard"
	"levee/internal/agent/defend"
	"levee/internal/agent/history"
	"levee/internal/lang/goldentest"
)

// TestTheAPIsPageIsMadeFromItsDocument keeps docs/reference/api.md equal to what the agent serves.
func TestTheAPIsPageIsMadeFromItsDocument(t *testing.T) {
	store, err := history.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	page := dashboard.Routes(func() (*history.Store, error) { return store, nil },
		new(dashboard.Reader).Read)
	text, err := agent.Document(
		daemon.Routes(defend.NewManager(defend.ManagerOptions{}), nil, page))
	if err != nil {
		t.Fatal(err)
	}
	made, err := apitest.Page(text)
	if err != nil {
		t.Fatal(err)
	}
	goldentest.Compare(t, "../../docs/reference/api.md", []byte(made))
}
