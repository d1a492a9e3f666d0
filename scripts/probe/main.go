// Command probe tries levee probe on a network of 254 addresses with 200 services, netfilter, NAT,
// what answers for every port, cookies, a filter on the way and 5 % of loss each way, and nmap and
// masscan on the same network. It fails where levee probe calls open or closed what is not, or does
// not say why it does not know.
//
//	probe [-bin DIR] [-rate N] [-peers=false] [-report FILE]
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"levee/internal/lab"
	"levee/internal/probe"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

// errWrong says that levee probe was wrong.
var errWrong = errors.New("levee probe says what is not so")

func run() error {
	bin := flag.String("bin", "bin", "where levee and levee-lab are")
	rate := flag.Int("rate", 1000, "packets a second of each")
	peers := flag.Bool("peers", true, "nmap and masscan, too")
	report := flag.String("report", "", "write the report of levee probe to this file")
	flag.Parse()
	dir, err := filepath.Abs(*bin)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "probe")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	tools := []tool{{"levee probe", levee}}
	if *peers {
		tools = append(tools, tool{"nmap", nmap}, tool{"masscan", masscan})
	}
	fmt.Printf("%-12s %6s %8s %6s %6s %12s %10s %12s %8s\n", "", "loss", "seconds", "open", "of",
		"false open", "not found", "false closed", "unknown")
	var wrong error
	for _, loss := range []bool{false, true} {
		n, err := build(ctx, dir, work, loss)
		if err != nil {
			return err
		}
		for _, t := range tools {
			began := time.Now()
			found, err := t.run(ctx, n, work, *rate)
			if err != nil {
				return errors.Join(fmt.Errorf("%s: %w", t.name, err), n.close())
			}
			score := scoreOf(found.states)
			score.print(t.name, loss, time.Since(began))
			if found.report == nil {
				continue
			}
			wrong = errors.Join(wrong, check(found.report, &score, loss))
			if *report == "" {
				continue
			}
			text, _ := json.MarshalIndent(found.report, "", "  ")
			if err := os.WriteFile(*report, text, 0o644); err != nil {
				return errors.Join(err, n.close())
			}
		}
		if err := n.close(); err != nil {
			return err
		}
	}
	return wrong
}

// tool is one that looks for services.
type tool struct {
	name string
	run  func(ctx context.Context, n *network, work string, rate int) (*found, error)
}

// found lists the services that a tool calls open, closed, or something else.
type found struct {
	states map[service]string
	report *probe.Report
}

// in runs a command in the world of the lab.
func in(ctx context.Context, n *network, name string, args ...string) ([]byte, error) {
	cmd := n.Host(lab.World).Command(ctx, name, args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 && out.Len() > 0 {
		err = nil // something differs, as it should
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
	}
	return out.Bytes(), nil
}

func levee(ctx context.Context, n *network, work string, rate int) (*found, error) {
	file := filepath.Join(work, "mine.probe")
	text := fmt.Sprintf("203.0.113.0/24 of \"the lab\" by \"nsenter --net=/run/netns/%s env "+
		"PATH=%s:/usr/sbin:/usr/bin:/sbin:/bin\" on eth0\n", n.Host(edge).Namespace, n.dir)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	out, err := in(ctx, n, filepath.Join(n.dir, "levee"), "probe", file, "--tcp", words(tcpPorts),
		"--udp", words(udpPorts), "--classes", "--rate", strconv.Itoa(rate), "--json",
		"--policy", filepath.Join(work, "edge.levee"))
	if err != nil {
		return nil, err
	}
	f := &found{map[service]string{}, new(probe.Report)}
	if err := json.Unmarshal(out, f.report); err != nil {
		return nil, err
	}
	for _, t := range f.report.Targets {
		f.states[service{t.Proto, netip.MustParseAddr(t.Address), t.Port}] = string(t.State)
	}
	return f, nil
}

// nmap sends SYNs and datagrams with its defaults, but for the ports and the rate.
func nmap(ctx context.Context, n *network, _ string, rate int) (*found, error) {
	out, err := in(ctx, n, "nmap", "-sS", "-sU", "-Pn", "-n", "-p", "T:"+words(tcpPorts)+",U:"+
		words(udpPorts), "--max-rate", strconv.Itoa(rate), "-oX", "-", "203.0.113.1-254")
	if err != nil {
		return nil, err
	}
	var doc struct {
		Hosts []struct {
			Addresses []struct {
				Addr string `xml:"addr,attr"`
			} `xml:"address"`
			Ports []struct {
				Proto string `xml:"protocol,attr"`
				Port  uint16 `xml:"portid,attr"`
				State struct {
					State string `xml:"state,attr"`
				} `xml:"state"`
			} `xml:"ports>port"`
		} `xml:"host"`
	}
	if err := xml.Unmarshal(out, &doc); err != nil {
		return nil, err
	}
	f := &found{states: map[service]string{}}
	for _, h := range doc.Hosts {
		for _, p := range h.Ports {
			f.states[service{p.Proto, netip.MustParseAddr(h.Addresses[0].Addr), p.Port}] =
				p.State.State
		}
	}
	return f, nil
}

// masscan tells of open ports alone; it sends each packet three times.
func masscan(ctx context.Context, n *network, work string, rate int) (*found, error) {
	list := filepath.Join(work, "masscan.json")
	d := n.Host(lab.World).Device("eth0")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go n.whisper(ctx)
	if _, err := in(ctx, n, "masscan", "203.0.113.1-203.0.113.254", "-p",
		words(tcpPorts)+",U:"+words(udpPorts), "--rate", strconv.Itoa(rate), "--retries", "2",
		"--wait", "3", "-e", "eth0", "--router-mac", d.Peer.MAC.String(), "--source-port",
		"61000", "-oJ", list); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	f := &found{states: map[service]string{}}
	if len(bytes.TrimSpace(text)) == 0 {
		return f, nil
	}
	var doc []struct {
		IP    string `json:"ip"`
		Ports []struct {
			Port   uint16 `json:"port"`
			Proto  string `json:"proto"`
			Status string `json:"status"`
		} `json:"ports"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	for _, h := range doc {
		for _, p := range h.Ports {
			f.states[service{p.Proto, netip.MustParseAddr(h.IP), p.Port}] = p.Status
		}
	}
	return f, nil
}

// score rates the answers of a tool.
type score struct {
	open, reachable       int
	falseOpen, falseClose int
	missed, unknown       int
}

func scoreOf(states map[service]string) (s score) {
	is := reachable()
	s.reachable = len(is)
	for _, a := range asked() {
		state := states[a]
		switch {
		case state == "open" && is[a]:
			s.open++
		case state == "open":
			s.falseOpen++
		case is[a] && state == "closed":
			s.falseClose++
		case is[a]:
			s.missed++
		}
		if state == "unknown" || state == "open|filtered" {
			s.unknown++
		}
	}
	return s
}

func (s *score) print(name string, loss bool, took time.Duration) {
	percent := map[bool]string{false: "none", true: "5 %"}[loss]
	fmt.Printf("%-12s %6s %8.1f %6d %6d %12d %10d %12d %8d\n", name, percent, took.Seconds(),
		s.open, s.reachable, s.falseOpen, s.missed, s.falseClose, s.unknown)
}

// check holds a report against what is so.
func check(r *probe.Report, s *score, loss bool) error {
	var wrong []error
	fail := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("%w: "+format, append([]any{errWrong}, args...)...))
	}
	if s.falseOpen+s.falseClose > 0 {
		fail("%d are open and %d closed that are not", s.falseOpen, s.falseClose)
	}
	is := reachable()
	for _, t := range r.Targets {
		at := service{t.Proto, netip.MustParseAddr(t.Address), t.Port}
		switch {
		case t.State != probe.Open && t.State != probe.Closed && t.Why == "":
			fail("%v is %s, and nobody knows why", at, t.State)
		case is[at] && t.State == probe.Filtered:
			fail("%v is filtered (%s), and it answers", at, t.Why)
		case answersForAll(at.addr) && t.State == probe.Open:
			fail("%v is open, and something answers for all there", at)
		}
	}
	if !loss && s.missed > 0 {
		fail("%d of %d are not found, without loss", s.missed, s.reachable)
	}
	if l := r.Loss.There; loss && (l.Of == 0 || float64(l.Lost)/float64(l.Of) < 0.03 ||
		float64(l.Lost)/float64(l.Of) > 0.07) {
		fail("the loss on the way there is measured as %v, and is 5 %%", l)
	}
	for _, why := range []string{"NAT in front of the policy", "upstream filter",
		"another machine answers", "refused behind it", "nothing came back"} {
		has := false
		for _, d := range r.Disagreements {
			has = has || strings.Contains(d.Why, why)
		}
		if !has {
			fail("no disagreement tells of: %s", why)
		}
	}
	return errors.Join(wrong...)
}
