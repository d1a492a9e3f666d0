package peer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/rpc/jsonrpc"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"

	"levee/internal/await"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/echo"
	"levee/internal/lab/gen"
	"levee/internal/lab/labtest"
)

// TestMain is a peer where the test's binary was started as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "peer" {
		if err := Serve(context.Background(), Serving{Version: "test",
			Roles: map[string][]string{"cat": {"cat"}}}, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// at is a peer on a host, with a script in the place of ssh, which greets as logins do.
func at(t *testing.T, h *lab.Host) Config {
	t.Helper()
	shell := filepath.Join(t.TempDir(), "shell")
	if err := os.WriteFile(shell, []byte("#!/bin/sh\necho 'Welcome, it is said.'\n"+
		"exec nsenter --net=/run/netns/$1 sh -c \"$2\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	return Config{Host: h.Namespace, Shell: []string{shell}, Program: os.Args[0], Version: "test",
		Device: "eth0"}
}

// refused wants a refusal that says something.
func refused(t *testing.T, err error, why string) {
	t.Helper()
	if !errors.Is(err, kernel.ErrRefused) || !strings.Contains(fmt.Sprint(err), why) {
		t.Errorf("want a refusal that says %q, got %v", why, err)
	}
}

// received returns the number of packets that have come to a host.
func received(t *testing.T, h *lab.Host) (n uint64) {
	if err := h.Do(func() error {
		l, err := netlink.LinkByName("eth0")
		if err == nil {
			n = l.Attrs().Statistics.RxPackets
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	return n
}

func TestAPeerSendsAndGivesItsInterfaceBack(t *testing.T) {
	here, there := labtest.Machines(t)
	p, err := Dial(t.Context(), at(t, there))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	d := &there.Devices[0]
	if c := p.Facts.Card; c.Name != "eth0" || c.Driver != "veth" || c.MAC != d.MAC ||
		p.Facts.Machine.Cores == 0 {
		t.Errorf("%+v", p.Facts)
	}
	// both are one machine, and one clock
	if o := p.Offset; o.Error <= 0 || o.Monotonic > o.Error || o.Monotonic < -o.Error ||
		o.Wall > o.Error+time.Second || o.Wall < -o.Error-time.Second {
		t.Errorf("clocks: %+v", o)
	}
	flood := gen.Config{Duration: time.Minute, Rate: 20_000, Floods: []gen.Flood{{Kind: gen.UDP,
		Sources: []netip.Prefix{netip.MustParsePrefix("16.0.0.0/4")}, To: netip.MustParseAddr(
			"198.18.0.1")}}}
	_, err = p.Send(t.Context(), flood)
	refused(t, err, "no interface is taken yet")
	if err := p.Take(End{Device: "eth0", Peer: d.Peer.MAC}); err != nil {
		t.Fatal(err)
	}
	refused(t, p.Take(End{Device: "eth0", Peer: d.Peer.MAC}), "taken already")
	if n, err := p.PacketSockets(); err != nil || n != 0 {
		t.Errorf("%d packet sockets, %v", n, err)
	}
	fast := flood
	fast.Rate = 1e9
	_, err = p.Send(t.Context(), fast)
	refused(t, err, "at most 2e+07 for 2m0s")
	frame := make([]byte, 64)
	for _, c := range []gen.Config{flood, {Duration: time.Minute, Frames: &gen.Frames{
		Frames: [][]byte{frame}}}, flood} {
		before := received(t, here)
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			defer stop()
			await.Until(func() bool { return received(t, here) > before+200 })
		}()
		r, err := p.Send(ctx, c)
		if err != nil || r.How == "" || r.Sent < 100 {
			t.Fatalf("%+v, %v", r, err)
		}
		// What comes later would end the next one before it has sent any.
		await.True(t, "all comes that was sent", func() bool {
			return received(t, here) >= before+r.Sent-r.Refused
		})
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	back(t, there)
}

// back wants the interface of a host where it was, and nothing left of a peer.
func back(t *testing.T, h *lab.Host) {
	t.Helper()
	err := h.Do(func() error { _, err := lab.Free("eth0"); return err })
	if err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(os.Getenv("TMPDIR") + "/*"); len(left) > 0 {
		t.Errorf("left: %s", left)
	}
}

// TestAPeerEndsWithItsClient: the process that measures is gone, in the middle of a flood.
func TestAPeerEndsWithItsClient(t *testing.T) {
	_, there := labtest.Machines(t)
	c := at(t, there)
	p, err := Dial(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Take(End{Device: "eth0", Peer: there.Devices[0].Peer.MAC}); err != nil {
		t.Fatal(err)
	}
	if err := p.call("Begin", Load{Duration: time.Minute, Rate: 1000, Floods: []gen.Flood{{
		Sources: []netip.Prefix{netip.MustParsePrefix("16.0.0.0/4")},
		To:      netip.MustParseAddr("198.18.0.1")}}}, &struct{}{}); err != nil {
		t.Fatal(err)
	}
	if err := p.rpc.Close(); err != nil { // as the kernel closes the pipe of a killed process
		t.Fatal(err)
	}
	await.True(t, "the interface is back", func() bool {
		return there.Do(func() error { _, err := lab.Free("eth0"); return err }) == nil
	})
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	back(t, there)
}

// TestAPeerWhoseAnswersNobodyReadsGivesItsInterfaceBack: ssh has closed all of its pipes, as when
// the process that measures was killed while it waited for an answer.
func TestAPeerWhoseAnswersNobodyReadsGivesItsInterfaceBack(t *testing.T) {
	_, there := labtest.Machines(t)
	t.Setenv("TMPDIR", t.TempDir())
	cmd := there.Command(t.Context(), os.Args[0], "peer")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(out)
	ask := func(method string, args any) {
		t.Helper()
		b, err := json.Marshal(map[string]any{"method": "Peer." + method, "id": 1,
			"params": []any{args}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write(append(b, '\n')); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := answers.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	ask("Take", End{Device: "eth0", Peer: there.Devices[0].Peer.MAC})
	if said, err := answers.ReadString('\n'); err != nil || !strings.Contains(said,
		`"error":null`) {
		t.Fatalf("%q, %v", said, err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	ask("Clock", struct{}{})
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ends by %v", err)
	}
	back(t, there)
}

// TestAPeerThatHasEndedTakesNothing: its client was killed just behind the question.
func TestAPeerThatHasEndedTakesNothing(t *testing.T) {
	_, there := labtest.Machines(t)
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := &Peer{ctx: ctx}
	if err := there.Do(func() error {
		return p.Take(End{Device: "eth0", Peer: there.Devices[0].Peer.MAC}, new(Taken))
	}); err == nil {
		t.Error("it takes an interface that nobody gives back")
		if err := p.close(); err != nil {
			t.Error(err)
		}
	}
	back(t, there)
}

// TestAHostilePeerReachesNoTerminal: a machine that was taken over answers what it likes.
func TestAHostilePeerReachesNoTerminal(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	go func() {
		for in := json.NewDecoder(there); ; {
			var q struct {
				ID     uint64
				Method string
			}
			if in.Decode(&q) != nil {
				return
			}
			answer := map[string]any{"id": q.ID, "result": nil, "error": "\x1b]0;x\a"}
			switch q.Method {
			case "Peer.Probe":
				answer = map[string]any{"id": q.ID, "result": Timed{Took: []int64{5, -7}},
					"error": nil}
			case "Peer.Read":
				answer = map[string]any{"id": q.ID, "result": Part{Bytes: make([]byte, 1<<20)},
					"error": nil}
			}
			b, _ := json.Marshal(answer)
			if _, err := there.Write(b); err != nil {
				return
			}
		}
	}()
	p := &Client{host: "there", said: new(tail), stop: func() {}, rpc: jsonrpc.NewClient(here)}
	defer p.rpc.Close()
	refused(t, p.Take(End{Device: "eth0"}), `peer there: "\x1b]0;x\a"`)
	for _, at := range [][]int64{{1}, {1, 2}} {
		_, err := p.Probe(t.Context(), echo.Probes{At: at})
		refused(t, err, fmt.Sprintf("2 round trips of %d probes", len(at)))
	}
	_, err := (&process{p: p, ctx: t.Context()}).Read(make([]byte, 1))
	refused(t, err, "1048576 bytes of a process")
	fmt.Fprint(p.said, "well\r\n\x1b[2Jwell\r\n")
	if got := p.said.String(); got != `"\x1b[2Jwell"` {
		t.Errorf("what ssh says is shown as %q", got)
	}
}

// TestAPeerThatIsThereAndDoesNotAnswerIsEnded: it held a measurement until somebody stopped that.
func TestAPeerThatIsThereAndDoesNotAnswerIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, ask := range map[string]func(*Client) error{
			"Take": func(p *Client) error { return p.Take(End{Device: "eth0"}) },
			"Probe": func(p *Client) error {
				_, err := p.Probe(t.Context(), echo.Probes{At: []int64{1}})
				return err
			},
			"Read": func(p *Client) error {
				_, err := (&process{p: p, ctx: t.Context()}).Read(make([]byte, 1))
				return err
			},
		} {
			here, there := net.Pipe()
			beats := 0
			go func() {
				for in := json.NewDecoder(there); ; {
					var q struct {
						ID     uint64
						Method string
					}
					if in.Decode(&q) != nil {
						return
					}
					if q.Method == "Peer.Clock" {
						beats++
						fmt.Fprintf(there, `{"id": %d, "result": {}, "error": null}`, q.ID)
					}
				}
			}()
			p := &Client{host: "there", said: new(tail), stop: func() { here.Close() },
				rpc: jsonrpc.NewClient(here)}
			ctx, stop := context.WithCancel(t.Context())
			go p.beat(ctx)
			refused(t, ask(p), "peer there did not answer within")
			stop()
			synctest.Wait()
			if beats < int(answersWithin/heartbeat)-1 {
				t.Errorf("%s: %d beats", what, beats)
			}
		}
	})
}

// TestProbesOfAPeerBeginAheadOfIt: what is late would count as if the answer were.
func TestProbesOfAPeerBeginAheadOfIt(t *testing.T) {
	var late Timed
	if err := new(Peer).Probe(echo.Probes{At: []int64{0}, Begin: 1}, &late); err != nil ||
		late.Late <= 0 || late.Took != nil {
		t.Errorf("a beginning that has gone by: %+v, %v", late, err)
	}
	err := new(Peer).Probe(echo.Probes{At: []int64{0}, Begin: kernel.Monotonic() + time.Hour},
		new(Timed))
	if err == nil || !strings.Contains(err.Error(), "by the peer's clock") {
		t.Errorf("a beginning in an hour: %v", err)
	}
}

// TestAPeerStartsItsRoles, and no other program; what they say comes back, and why they fail.
func TestAPeerStartsItsRoles(t *testing.T) {
	_, there := labtest.Machines(t)
	p, err := Dial(t.Context(), at(t, there))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	_, err = p.Start(t.Context(), "cat")
	refused(t, err, "no interface is taken yet")
	if err := p.Take(End{Device: "eth0", Peer: there.Devices[0].Peer.MAC, Nice: -1}); err != nil {
		t.Fatal(err)
	}
	if len(p.Clients4) == 0 {
		t.Error("nobody knows the addresses of clients")
	}
	_, err = p.Start(t.Context(), "sh", "-c", "true")
	refused(t, err, `no role "sh"`)
	cat, err := p.Start(t.Context(), "cat", "-u")
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("a line\n", 2*mostBytes/7)
	go func() {
		_, err := cat.In.Write([]byte(long))
		if err := errors.Join(err, cat.In.Close()); err != nil {
			t.Error(err)
		}
	}()
	if back, err := io.ReadAll(cat.Out); err != nil || string(back) != long {
		t.Errorf("%d bytes came back of %d: %v", len(back), len(long), err)
	}
	if err := cat.Wait(); err != nil {
		t.Error(err)
	}
	fails, err := p.Start(t.Context(), "cat", "/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	refused(t, fails.Wait(), "exit status 1: cat: /nowhere: No such file")
	// one that is there still ends with the peer
	waits, err := p.Start(t.Context(), "cat")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits.Out.(*process).ctx = ctx
	time.AfterFunc(time.Millisecond, cancel)
	if _, err := waits.Out.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting ends by %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	back(t, there)
}

// TestAPeerThatSaysNothingIsWaitedForUntilSomebodyStops: ssh waits for a network that drops all.
func TestAPeerThatSaysNothingIsWaitedForUntilSomebodyStops(t *testing.T) {
	shell := filepath.Join(t.TempDir(), "shell")
	waits := filepath.Join(t.TempDir(), "waits")
	if err := os.WriteFile(shell, []byte("#!/bin/sh\n: >"+waits+"\nexec tail -f /dev/null\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Dial(ctx, Config{Host: "nowhere", Shell: []string{shell}, Command: "levee-lab"})
		ended <- err
	}()
	await.True(t, "somebody waits", func() bool {
		_, err := os.Stat(waits)
		return err == nil
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ends by %v", err)
	}
}

func TestWhereThereIsNoPeerItIsSaid(t *testing.T) {
	here, there := labtest.Machines(t)
	c := at(t, there)
	for _, x := range []struct {
		change func(*Config)
		why    string
	}{
		{func(c *Config) { c.Shell = []string{"/nowhere/ssh"} }, "start /nowhere/ssh"},
		{func(c *Config) { c.Host = "nowhere" }, "nowhere"},
		{func(c *Config) { c.Command = "levee-lab-of-nobody" }, "not found"},
		{func(c *Config) { c.Command = "echo levee-lab" }, "no peer at"},
		{func(c *Config) { c.Version = "2" }, "is version test, here it is 2"},
		{func(c *Config) { c.Device = "eth7" }, `no device "eth7"`},
		{func(c *Config) { c.Device = "lo" }, "lo is no Ethernet interface"},
	} {
		c := c
		x.change(&c)
		p, err := Dial(t.Context(), c)
		refused(t, err, x.why)
		if err == nil {
			p.Close()
		} else if strings.Contains(err.Error(), "\npeer ") { // by its end, once more
			t.Errorf("told twice: %v", err)
		}
	}
	back(t, there)
	back(t, here)
}
