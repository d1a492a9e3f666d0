package dataplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/codegen"
)

// childEnv carries an order to this test binary, run as a command of its own.
const childEnv = "LEVEE_TEST_CHILD"

// order is one levee command, for this process or for a child.
type order struct {
	Do      string // up, wait (up and wait for its confirmation), confirm, status, read, save, down
	Dev     string
	Devs    []string // not nil: that get a policy of a text as one
	Mode    store.Mode
	File    string
	Label   string
	Text    string // of the policy; "": handPolicy
	Confirm time.Duration
	Pair    codegen.Lifetime // not "": pairProgram, with a map of that lifetime
	Egress  store.Mode       // of its program there, beside XDP
	Carry   bool             // live rules go on in it
	Kill    int              // the step, counting from 1, at which the child kills itself; 0: none
	Readers string           // the group that reads; "": levee
	Unit    bool             // forbidden what systemd forbids the units
}

func (o order) run(ctx context.Context) error {
	switch o.Do {
	case "up":
		if o.Devs != nil {
			_, err := UpAll(ctx, o.Devs, UpOptions{Names: o.Devs, Confirm: o.Confirm,
				PolicyPath: o.File, Source: []byte(o.Text)}, compileText(o.Text))
			return err
		}
		compile := compileHand(named(o.File, o.Label))
		if o.Pair != "" {
			compile = compilePair(o.File, o.Pair)
		}
		if o.Text != "" {
			compile = compileText(o.Text)
		}
		up := UpOptions{Dev: o.Dev, Mode: o.Mode, Confirm: o.Confirm,
			PolicyPath: o.File, Source: []byte(o.Text), egressMode: o.Egress}
		if o.Carry {
			up.Carry = carryInto(o.Text)
		}
		_, err := Up(ctx, up, compile)
		return err
	case "move":
		_, err := moveOn(ctx, UpOptions{Dev: o.Dev, still: "it stands still", tc: o.Mode},
			compileHand(named(o.File, o.Label)))
		return err
	case "wait":
		r, err := Up(ctx, UpOptions{Dev: o.Dev, Confirm: o.Confirm, PolicyPath: o.File},
			compileHand(named(o.File, o.Label)))
		if err != nil {
			return err
		}
		fmt.Println("waiting")
		_, err = WaitTrial(ctx, r, time.Second)
		return err
	case "shadow":
		return upShadowOf(ctx, o.Text, o.File, o.Dev)
	case "down shadow":
		_, _, err := DownShadow(ctx, o.Dev)
		return err
	case "confirm":
		_, err := Confirm(ctx, o.Dev)
		return err
	case "status":
		all, _, err := inspect.Status(ctx, false)
		for _, a := range all {
			fmt.Println(a.Dev, a.Policy, packets(&a, o.Label))
		}
		return err
	case "read": // what members of the group may
		all, _, err := inspect.Status(ctx, false)
		for _, a := range all {
			fmt.Println(a.Dev, a.Policy, packets(&a, o.Label))
		}
		sets, err2 := sets.List(ctx, o.Dev, "abusers")
		for _, s := range sets {
			for _, e := range s.Entries {
				fmt.Println(e.Element(), e.Lease)
			}
		}
		return errors.Join(err, err2)
	case "keep": // until the policy is in force
		ctx, end := context.WithCancel(ctx)
		defer end()
		err := Keep(ctx, UpOptions{Dev: o.Dev, Names: []string{o.Dev}, PolicyPath: o.File,
			Source: []byte(o.Text)}, compileText(o.Text),
			nil, KeepEvents{Ready: func([]*Report) { end() }})
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	case "read on": // until it is killed, or something is not right
		for n := 0; ; n++ {
			if err := readOnce(ctx, o.Dev, o.Label); err != nil {
				return fmt.Errorf("look %d: %w", n, err)
			}
			if n == 0 {
				fmt.Println("reading")
			}
		}
	case "touch": // what members of the group may not
		return touch(os.Getenv(store.RunEnv), o.File, o.Dev)
	case "memories": // what members of the group are told of memories
		all, _, err := inspect.Status(ctx, false)
		for _, a := range all {
			fmt.Println(a.Limits, a.Connections.Open, a.Cookies != nil, a.Fragments != nil,
				a.Program.JitedLen > 0, !a.Told.IsZero())
		}
		return err
	case "send":
		c, err := net.Dial("udp4", o.File)
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("x"))
		return errors.Join(err, c.Close())
	case "sample":
		s, err := tap.NewSampler(ctx, o.Dev, 64)
		if err == nil {
			err = s.Read(func(tap.Sampled) {})
			s.Close()
		}
		return err
	case "capture":
		c := tap.NewCapturing(tap.Capturing{Dev: o.Dev, Snap: 64, Rate: 1000})
		defer c.Close()
		if err := c.Follow(ctx); err != nil {
			return err
		}
		_, err := c.Read(func(tap.Captured) bool { return true })
		return err
	case "watch":
		d := tap.NewDeciding(tap.Deciding{Dev: o.Dev, Rate: 100, Snap: 64})
		defer d.Close()
		if err := d.Begin(ctx); err != nil {
			return err
		}
		return d.Read()
	case "logs":
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return tap.Watch(ctx, o.Dev, func(tap.Event) {}, func(tap.Losses) {})
	case "save":
		_, err := sets.Save(ctx, o.Dev, "")
		return err
	case "down":
		_, err := Down(ctx, o.Dev)
		return err
	}
	return errors.New("no such order")
}

// stepping is a context under which f is told of each step of a change, and may fail it.
func stepping(ctx context.Context, f store.Steps) context.Context {
	return context.WithValue(ctx, store.StepsKey{}, f)
}

// failing fails the steps of that name.
func failing(name string) store.Steps {
	return func(step string) error {
		if step == name {
			return errInjected
		}
		return nil
	}
}

func TestMain(m *testing.M) {
	if s := os.Getenv(childEnv); s != "" {
		os.Exit(child(s))
	}
	handName() // for the commands of all tests
	os.Exit(m.Run())
}

func child(s string) int {
	var o order
	if err := json.Unmarshal([]byte(s), &o); err != nil {
		panic(err)
	}
	if o.Readers != "" {
		store.Readers = &store.Group{Name: o.Readers}
	}
	if o.Unit {
		if err := asUnit(); err != nil {
			panic(err)
		}
	}
	n := 0
	ctx := stepping(context.Background(), func(string) error {
		if n++; n == o.Kill {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	})
	if err := o.run(ctx); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// inChild runs an order in a process of its own, with a command before it such as `ip netns exec`.
func inChild(t *testing.T, o order, wrapper ...string) (out string, killed bool) {
	t.Helper()
	cmd := command(t, o, wrapper...)
	var buf bytes.Buffer
	cmd.Stdout, cmd.Stderr = &buf, &buf
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return buf.String(), true
	}
	if err != nil {
		t.Fatalf("%+v: %v\n%s", o, err, buf.String())
	}
	return buf.String(), false
}

func command(t *testing.T, o order, wrapper ...string) *exec.Cmd {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	args := append(wrapper, os.Args[0])
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), childEnv+"="+string(b))
	return cmd
}

// inChildNet is inChild from any goroutine, in namespace here.
func inChildNet(t *testing.T, n *testNet, o order) {
	t.Helper()
	runtime.LockOSThread() // the thread ends with the goroutine
	if err := netns.Set(n.here); err != nil {
		t.Error(err)
		return
	}
	inChild(t, o)
}
