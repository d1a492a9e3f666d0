// Package client is how commands reach the agent: what goes in is asked of the one that runs, or
// looked up in its files where none does, and its answer comes out. It must never change a file
// that an agent has open.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"time"

	"levee/internal/agent"
	"levee/internal/agent/api"
	"levee/internal/agent/incident"
	"levee/internal/agent/ledger"
	"levee/internal/kernel"
)

// ErrNone is that no agent answers.
var ErrNone = errors.New("no agent runs: levee agent run, or systemctl start levee-agent")

// Ask sends a request to the agent that runs; body is nil for one that only looks.
func Ask(method, path string, body, out any) error {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", Socket())
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial}}
	defer client.CloseIdleConnections()
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequest(method, "http://agent/api/v1/"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return ErrNone
	}
	if errors.Is(err, fs.ErrPermission) {
		return kernel.Refuse(nil,
			"only root may ask the agent at %s: run it as root (sudo); others ask its "+
				"API with a token (levee help agent)", Socket())
	}
	if err != nil {
		return fmt.Errorf("ask the agent: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		var p api.Problem
		if err := json.NewDecoder(io.LimitReader(res.Body, 1<<16)).Decode(&p); err != nil {
			return fmt.Errorf("the agent answers %s", res.Status)
		}
		return fmt.Errorf("the agent: %s", p.Detail)
	}
	if err := json.NewDecoder(res.Body).Decode(out); err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	return nil
}

// Leases returns the leases that a filter chooses, of the agent that runs.
func Leases(f *agent.Filter) (all []agent.Listed, err error) {
	all = []agent.Listed{}
	q := url.Values{"limit": {"10000"}}
	for name, v := range map[string]string{"set": f.Set, "origin": f.Origin} {
		if v != "" {
			q.Set(name, v)
		}
	}
	for _, p := range f.Entries {
		q.Add("entry", p.String())
	}
	for {
		var page agent.LeasePage
		if err := Ask(http.MethodGet, "leases?"+q.Encode(), nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Leases...)
		if page.Next == "" {
			return all, nil
		}
		q.Set("after", page.Next)
	}
}

// OrLedger asks the agent that runs, or opens the ledger where none does. An agent that begins
// to run in between has the ledger, and is asked.
func OrLedger(ask func() error, do func(*ledger.Ledger) error) error {
	for deadline := time.Now().Add(ledger.Wait); ; {
		err := ask()
		if !errors.Is(err, ErrNone) {
			return err
		}
		err = withLedger(do)
		if !errors.Is(err, ledger.ErrBusy) || time.Now().After(deadline) {
			return err
		}
	}
}

// withLedger opens the ledger where no agent runs.
func withLedger(do func(*ledger.Ledger) error) error {
	_, err := os.Stat(Ledger())
	if errors.Is(err, fs.ErrPermission) {
		return kernel.Refuse(nil, "%v, and only root may read %s: run it as root (sudo)", ErrNone,
			Ledger())
	}
	if err != nil {
		return fmt.Errorf("%w, and there are no leases: %w", ErrNone, err)
	}
	l, err := ledger.Open(Ledger(), 100*time.Millisecond)
	if err != nil {
		return err
	}
	if l.Damaged != "" {
		return errors.Join(fmt.Errorf("the ledger was damaged (%w) and lies in %s now", l.Reason,
			l.Damaged), l.Close())
	}
	return errors.Join(do(l), l.Close())
}

// Damaged is the error of a store whose file could not be read.
func Damaged(s *incident.Store) error {
	return fmt.Errorf("%s is damaged, and is put aside as %s: %w", s.Path(), s.Aside(), s.Damaged)
}

// Incidents reads incidents where no agent runs.
func Incidents() ([]incident.Incident, error) {
	if _, err := os.Stat(IncidentsFile()); err != nil {
		return []incident.Incident{}, nil
	}
	store := incident.OpenStore(IncidentsFile())
	if store.Damaged != nil {
		return nil, Damaged(store)
	}
	return store.List(), nil
}
