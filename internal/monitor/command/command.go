// Package command has the commands of monitors. In go arguments and the environment of a process,
// out come pictures, lines, records and metrics. It must never decide what the packages of monitors
// decide.
package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/lang/diag"
	"levee/internal/monitor/mpegts"
	"levee/internal/monitor/mpegts/live"
	"levee/internal/openmetrics"
	"levee/internal/openmetrics/exporter"
)

// New returns the command `levee monitor`.
func New(e *cli.Env) *cobra.Command {
	return cli.Noun("monitor COMMAND", "Watch streams that come to an interface",
		`Watch streams that come to an interface: what of them is missing, late or damaged, before
whoever looks at them says so.`, "  sudo levee monitor mpegts eth0", newMPEGTS(e))
}

const mpegtsLong = `Follow the MPEG transport streams (IPTV) that come to an interface by UDP, with RTP
or without, until Ctrl-C or for --duration. For each stream it tells the delay factor and the loss
rate of the media delivery index (RFC 4445), and for each PID where the continuity counter jumps and
how many packets are missing.

It is no fault of a stream if it declares a discontinuity, repeats a packet once, or sends packets
with an adaptation field alone. Datagrams with parity (FEC) are left out. Datagrams in IP fragments
are counted, and not followed: what comes next begins anew.

On a terminal it shows a picture, else a line for each event, and at the end a table. --json prints
a report a line. --events adds events to a file, or sends them to a unix socket, as records that a
source of the agent reads; --listen serves metrics.

The program is at tcx, behind the policy of the interface: it sees what that lets pass. --mode xdp
is for mirror ports: nothing else may be at XDP there, and with --discard the streams end at the
monitor. The program goes when the command ends, also when it is killed.`

const mpegtsExample = `  sudo levee monitor mpegts eth1
  sudo levee monitor mpegts eth1 --group 239.1.1.1:5004 --group 239.1.1.2
  sudo levee monitor mpegts eth1 --duration 10s --json | jq .streams
  sudo levee monitor mpegts eth1 --events /run/iptv.json --listen 9470`

type flags struct {
	groups                        []string
	mode, rate, interval, silence string
	window, forget, duration      string
	streams                       int
	discard, json                 bool
	events, listen                string
	every, forgetAfter, ends      time.Duration
	options                       live.Options
}

func newMPEGTS(e *cli.Env) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:     "mpegts IF",
		Short:   "Follow MPEG transport streams: continuity, signal, delay factor",
		Long:    mpegtsLong,
		Example: mpegtsExample,
		Args:    cli.WantArgs("IF"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.read(cmd); err != nil {
				return err
			}
			if err := e.Privileged(); err != nil {
				return err
			}
			return run(e, args[0], &f)
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.groups, "group", nil,
		"only streams to this `address` and port, as 239.1.1.1:5004, or to any port of it")
	fl.StringVar(&f.mode, "mode", "", "tcx or xdp (default: tcx, before Linux 6.6 xdp)")
	_ = cmd.RegisterFlagCompletionFunc("mode", cli.Offered(func(*cobra.Command) []string {
		return []string{live.TCX, live.XDP}
	}))
	fl.BoolVar(&f.discard, "discard", false, "with --mode xdp: streams end here (a mirror port)")
	fl.IntVar(&f.streams, "streams", 1024, "follow at most n streams, 28 KB each")
	fl.StringVar(&f.rate, "rate", "",
		"media rate of each stream in bits a second (default: by its PCRs, or by what comes)")
	fl.StringVar(&f.interval, "interval", "1s", "look so often, 100ms to 1h")
	fl.StringVar(&f.window, "window", "1s", "of the delay factor")
	fl.StringVar(&f.silence, "silence", "1s", "a pause of so long is no signal")
	fl.StringVar(&f.forget, "forget", "10m", "forget streams that have had no signal for so long")
	fl.StringVar(&f.duration, "duration", "", "end after this time")
	fl.StringVar(&f.events, "events", "", "add events to this file, or send them to a unix socket")
	fl.StringVar(&f.listen, "listen", "", "serve metrics: PORT, ADDRESS:PORT or unix:PATH")
	cli.JsonFlag(cmd, &f.json)
	return cmd
}

// read reads the values of flags.
func (f *flags) read(cmd *cobra.Command) error {
	o := &f.options
	for _, d := range []struct {
		name, text  string
		to          *time.Duration
		least, most time.Duration
	}{
		{"interval", f.interval, &f.every, 100 * time.Millisecond, time.Hour},
		{"window", f.window, &o.Window, 100 * time.Millisecond, time.Minute},
		{"silence", f.silence, &o.Silence, 10 * time.Millisecond, time.Hour},
		{"forget", f.forget, &f.forgetAfter, time.Second, 30 * 24 * time.Hour},
		{"duration", f.duration, &f.ends, time.Millisecond, 365 * 24 * time.Hour},
	} {
		if d.text == "" {
			continue
		}
		v, err := cli.ParseDuration(d.text)
		if err != nil {
			return cli.Usagef(cmd, "--%s: %v", d.name, err)
		}
		if v < d.least || v > d.most {
			return cli.Usagef(cmd, "--%s %s: from %s to %s", d.name, d.text, d.least, d.most)
		}
		*d.to = v
	}
	if f.forgetAfter < o.Silence {
		return cli.Usagef(cmd, "--forget is shorter than --silence")
	}
	if o.Streams = f.streams; o.Streams < 1 || o.Streams > live.MostStreams {
		return cli.Usagef(cmd, "--streams: 1 to %d", live.MostStreams)
	}
	if f.mode != "" && f.mode != live.TCX && f.mode != live.XDP {
		return cli.Usagef(cmd, "--mode is tcx or xdp, not %s", diag.Quoted(f.mode))
	}
	if o.Discard = f.discard; f.discard && f.mode != live.XDP {
		return cli.Usagef(cmd, "--discard needs --mode xdp: only there can packets end")
	}
	if f.rate != "" {
		var err error
		if o.Rate, err = cli.ParseRate(f.rate); err != nil || o.Rate < 1000 || o.Rate > 1e11 {
			return cli.Usagef(cmd, "--rate %s: bits a second, 1k to 100G", diag.Quoted(f.rate))
		}
	}
	for _, g := range f.groups {
		at, err := mpegts.ParseGroup(g)
		if err != nil {
			return cli.Usagef(cmd, "--group: %v", err)
		}
		o.Groups = append(o.Groups, at)
	}
	if len(o.Groups) > live.MostGroups {
		return cli.Usagef(cmd, "--group: at most %d", live.MostGroups)
	}
	if f.listen != "" {
		if _, _, err := exporter.Address(f.listen); err != nil {
			return cli.Usagef(cmd, "--listen: %v", err)
		}
	}
	return nil
}

// monitor is one that runs.
type monitor struct {
	*cli.Env
	*flags
	mpegts.Watched
	*live.Monitor
	events io.WriteCloser

	mu     sync.Mutex
	report *mpegts.Report // the last
}

func run(e *cli.Env, dev string, f *flags) (err error) {
	ctx, stop := e.Signals()
	defer stop()
	m := &monitor{Env: e, flags: f}
	if f.events != "" {
		if m.events, err = openEvents(f.events); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.events.Close()) }()
	}
	m.Monitor, err = live.Open(dev, f.mode, f.options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Monitor.Close()) }()
	m.Watched = mpegts.Watched{Dev: dev, Mode: m.Monitor.Mode, Behind: m.Monitor.Behind,
		Silence: f.options.Silence, Groups: f.options.Groups, Begun: live.Now()}
	if m.Watched.Behind != "" {
		e.Sayf("%s: behind %s: what that drops does not come here", dev, m.Watched.Behind)
	}
	if f.ends > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, f.ends)
		defer end()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	if f.listen != "" {
		network, address, _ := exporter.Address(f.listen) // was read before
		l, err := exporter.Listen(network, address)
		if err != nil {
			return err
		}
		go func() {
			served <- exporter.Serve(ctx, l, m.metrics)
			cancel()
		}()
	}
	err = m.watch(ctx)
	cancel()
	if f.listen != "" {
		err = errors.Join(err, <-served)
	}
	return err
}

// metrics returns the text of the last look.
func (m *monitor) metrics(format openmetrics.Format) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.report == nil {
		return openmetrics.Append(nil, format, nil), nil
	}
	return openmetrics.Append(nil, format, m.report.Metrics()), nil
}

// watch looks again and again, and tells at the end what there was.
func (m *monitor) watch(ctx context.Context) error {
	tick := time.NewTicker(m.every)
	defer tick.Stop()
	var before *mpegts.Look
	for {
		now, err := m.look()
		if err != nil {
			return err
		}
		r := m.Watched.Report(before, now)
		m.mu.Lock()
		m.report = r
		m.mu.Unlock()
		over := ctx.Err() != nil
		if err := m.tell(m.Watched.Events(before, now), r, over); err != nil || over ||
			m.Stdout.Err != nil {
			return err
		}
		if err := m.Forget(now.Gone(m.forgetAfter, m.Groups, before)); err != nil {
			return err
		}
		before = now
		select {
		case <-ctx.Done(): // and looks once more
		case <-tick.C:
		}
	}
}

func (m *monitor) look() (*mpegts.Look, error) {
	if err := m.Here(); err != nil {
		return nil, fmt.Errorf("%s: %w", m.Watched.Dev, err)
	}
	l := &mpegts.Look{}
	var err error
	l.Streams, l.Totals, err = m.Read()
	// The clock behind the counters: no stream is of later than it.
	l.At, l.Clock = m.Now(), live.Now()
	return l, err
}

// tell shows a look.
func (m *monitor) tell(events []mpegts.Event, r *mpegts.Report, last bool) error {
	var b bytes.Buffer
	switch {
	case m.json:
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(r); err != nil {
			return fmt.Errorf("make JSON: %w", err)
		}
	case m.Stdout.Terminal:
		// to the corner, and empty from there
		_, _ = io.WriteString(m.Stdout.Raw(), "\x1b[H\x1b[J")
		table(&b, r)
	default:
		for i := range events {
			fmt.Fprintf(&b, "%s %s\n", events[i].Time.Format("15:04:05.000"), events[i].String())
		}
		if last {
			table(&b, r)
		}
	}
	_, _ = m.Stdout.Write(b.Bytes())
	if m.events == nil || len(events) == 0 {
		return nil
	}
	var records []byte
	for i := range events {
		records = append(append(records, events[i].EVE()...), '\n')
	}
	if _, err := m.events.Write(records); err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	return nil
}

// openEvents opens a file to add to, or connects to a socket.
func openEvents(path string) (io.WriteCloser, error) {
	st, err := os.Stat(path)
	if err == nil && st.Mode().Type() == os.ModeSocket {
		c, err := net.Dial("unix", path)
		if err != nil {
			return nil, fmt.Errorf("send events to %s: %w", path, err)
		}
		return c, nil
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
}

// table prints a report.
func table(w io.Writer, r *mpegts.Report) {
	silent := 0
	for i := range r.Streams {
		if !r.Streams[i].Signal {
			silent++
		}
	}
	fmt.Fprintf(w, "%s, %s: %s", r.Dev, r.Mode, cli.Plural(len(r.Streams), "stream"))
	if silent > 0 {
		fmt.Fprintf(w, ", %d without signal", silent)
	}
	fmt.Fprintln(w)
	t := cli.NewTable("to from Mbit/s DF:MLR discontinuities missing RTP-lost",
		"<", "<", ">", ">", ">", ">", ">")
	for i := range r.Streams {
		s := &r.Streams[i]
		mdi := "-"
		if s.Delay != nil {
			mdi = fmt.Sprintf("%.1f", *s.Delay)
		}
		rtp := "-"
		if s.RTP {
			rtp = fmt.Sprint(s.RTPLost)
		}
		t.Row(s.Name(), s.Src, fmt.Sprintf("%.3f", s.Bps/1e6), fmt.Sprintf("%s:%.0f", mdi, s.Loss),
			s.Discontinuities, s.Missing, rtp)
	}
	if len(r.Streams) > 0 {
		t.Print(w, "  ")
	}
	for i := range r.Streams {
		s := &r.Streams[i]
		for j := range s.PIDs {
			if p := &s.PIDs[j]; p.Discontinuities > 0 {
				fmt.Fprintf(w, "  %s PID %#x: %s, %s missing\n", s.Name(), p.PID,
					cli.Plural(p.Discontinuities, "discontinuity"), cli.Plural(p.Missing, "packet"))
			}
		}
		if notes := s.Notes(r.At); len(notes) > 0 {
			fmt.Fprintf(w, "  %s: %s\n", s.Name(), strings.Join(notes, ", "))
		}
	}
	for _, n := range r.Notes() {
		fmt.Fprintf(w, "  %s\n", n)
	}
}
