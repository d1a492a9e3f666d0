package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"levee/internal/agent/api"
	"levee/internal/agent/api/apitest"
	"levee/internal/agent/client"
	"levee/internal/await"
	"levee/internal/dataplane"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/lockout"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/host/session"
	"levee/internal/kernel"
	"levee/internal/lang/resolve"
)

// childEnv makes the test binary an agent with a policy in force, in namespaces of its own.
const childEnv = "LEVEE_TEST_AGENT"

var fuzzFor = flag.Duration("api.fuzz", time.Second, "how long the agent's API is sent requests")

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	if err := child(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestARunningAgentDoesWhatItsDocumentSays sends whatever the document calls for, as each role, to
// an agent that has a policy in force.
func TestARunningAgentDoesWhatItsDocumentSays(t *testing.T) {
	if err := kernel.Privileged(); os.Getuid() != 0 || err != nil {
		t.Skip("needs root: it makes namespaces and attaches programs")
	}
	dir := t.TempDir()
	cmd := exec.Command("/proc/self/exe", "-api.fuzz", fuzzFor.String())
	cmd.Env = append(os.Environ(), childEnv+"=1", store.RunEnv+"="+filepath.Join(dir, "run"),
		sets.LibEnv+"="+filepath.Join(dir, "lib"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

const fuzzedPolicy = `interface lv0
protect from 192.0.2.0/24
set abusers = dynamic(max 1000, lease 1h)
drop from abusers as "abuser"
default pass
`

// child puts a policy into force, runs an agent, and prints what became of the requests.
func child() (err error) {
	// What is mounted goes with the namespace.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("have mounts of its own: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "lv0"
	if err := errors.Join(netlink.LinkSetUp(lo), netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs,
		PeerName: "lv1"})); err != nil {
		return err
	}
	p, ds := resolve.Parse("edge.levee", []byte(fuzzedPolicy), nil)
	if ds.HasErrors() {
		return ds.Err()
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if _, err := dataplane.Up(ctx, dataplane.UpOptions{Dev: "lv0", PolicyPath: "/edge.levee",
		Source: []byte(fuzzedPolicy)}, dataplane.Compiler(p)); err != nil {
		return err
	}
	defer func() {
		_, err2 := dataplane.Down(context.Background(), "lv0")
		err = errors.Join(err, err2)
	}()
	if err := os.MkdirAll(filepath.Dir(client.Tokens()), 0o700); err != nil {
		return err
	}
	known, tokens := api.OpenTokens(client.Tokens()), map[string]string{}
	for name, role := range map[string]api.Role{"viewer": api.Viewer, "operator": api.Operator,
		"admin": api.Admin} {
		if tokens[name], err = known.Add(name, role, time.Hour); err != nil {
			return err
		}
	}
	const address = "127.0.0.1:7443"
	ended := make(chan error, 1)
	say := func(string, ...any) {}
	go func() {
		ended <- Run(ctx, Options{Listen: Listen{Addresses: []string{address}},
			Gate:     &lockout.Gate{Link: attach.LinkLayer, Sessions: session.On, Say: say},
			Interval: time.Second, Notify: func(string) error { return nil }, Say: say}, nil)
	}()
	if err := fuzz("http://"+address, tokens, ended); err != nil {
		return err
	}
	stop()
	return <-ended
}

func fuzz(url string, tokens map[string]string, ended <-chan error) error {
	get := func(path string) (string, error) {
		req, err := http.NewRequest(http.MethodGet, url+"/api/v1/"+path, nil)
		if err != nil {
			return "", err
		}
		req.Header.Set("Authorization", "Bearer "+tokens["admin"])
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			return "", fmt.Errorf("%s: %d %s %w", path, res.StatusCode, text, err)
		}
		return string(text), nil
	}
	var early error
	if !await.Until(func() bool {
		select {
		case early = <-ended:
			return true
		default:
		}
		_, err := get("policies")
		return err == nil
	}) || early != nil {
		return fmt.Errorf("the agent does not answer: %w", early)
	}
	// passing are numbers that change by themselves.
	passing := regexp.MustCompile(`"(lease_seconds|packets|bytes)":[0-9.e+]+`)
	seed := uint64(time.Now().UnixNano())
	const entries, of = "/api/v1/sets/{set}/entries", "/api/v1/sets/abusers/entries"
	rep, err := apitest.Fuzz(&apitest.Target{URL: url, Tokens: tokens,
		State: func() (string, error) {
			var b strings.Builder
			for _, path := range []string{"leases", "sets/abusers/entries", "policies"} {
				text, err := get(path)
				if err != nil {
					return "", err
				}
				b.WriteString(passing.ReplaceAllString(text, ""))
			}
			return b.String(), nil
		},
		Calls: []apitest.Call{
			{Method: "POST", Path: entries, Role: "operator", Target: of,
				Body: `{"entries":["203.0.113.50"],"lease":"10m"}`},
			{Method: "GET", Path: entries, Role: "viewer", Target: of},
			{Method: "DELETE", Path: entries, Role: "operator",
				Target: of + "?entry=203.0.113.50"}},
		Values: map[string][]string{"set": {"abusers"}, "dev": {"lv0"},
			"entries": {"203.0.113.9", "198.51.100.0/24", "2001:db8::1"},
			"entry":   {"203.0.113.9", "198.51.100.0/24"}, "lease": {"10m", "forever"},
			"text": {"drop tcp\ndefault pass\n", "set x = file(\"/etc/shadow\")\n"}}}, seed,
		*fuzzFor)
	if err != nil {
		return fmt.Errorf("seed %d: %w", seed, err)
	}
	text, err := json.Marshal(rep)
	if err != nil {
		return err
	}
	fmt.Printf("seed %d: %s\n", seed, text)
	if len(rep.Faults) > 0 {
		return errors.New("the agent does not do what its document says")
	}
	return nil
}
