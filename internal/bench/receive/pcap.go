package receive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/lab/contender"
)

// pcap is a tcpdump that throws away what it captures.
type pcap struct {
	cmd     *exec.Cmd
	told    chan uint64   // packets captured, as it answers SIGUSR1
	ended   chan struct{} // once it has said all
	final   map[string]uint64
	running bool
	stack   *behind
}

// answers bounds the wait for what tcpdump says, which it does between two packets.
const answers = 5 * time.Second

var (
	asked  = regexp.MustCompile(`(\d+) packets? captured, `)
	atLast = regexp.MustCompile(`^(\d+) packets? (captured|received by filter|dropped by kernel)$`)
)

func openPcap(ctx context.Context, s site) (_ reader, err error) {
	if _, err := exec.LookPath("tcpdump"); err != nil {
		return nil, fmt.Errorf("%w: tcpdump is not installed: apt-get install tcpdump", errNone)
	}
	p := &pcap{told: make(chan uint64, 1), ended: make(chan struct{}),
		final: map[string]uint64{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.stack, err = install(ctx, contender.TCDrop(), s); err != nil {
		return nil, err
	}
	p.cmd = s.host.Command(context.WithoutCancel(ctx), "tcpdump", "-i", s.device.Name, "-n",
		"-Q", "in", "-Z", "root", "-B", strconv.Itoa(room>>10), "-w", "/dev/null")
	says, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err = p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting tcpdump: %w", err)
	}
	p.running = true
	ready := make(chan string, 1)
	go p.listen(says, ready)
	select {
	case said := <-ready:
		if !strings.Contains(said, "listening on") {
			return nil, fmt.Errorf("starting tcpdump: it says %q", said)
		}
	case <-time.After(answers):
		return nil, errors.New("starting tcpdump: it says nothing")
	}
	return p, first(p.cmd.Process.Pid, s.cpu)
}

// listen reads what tcpdump says.
func (p *pcap) listen(says io.Reader, ready chan<- string) {
	defer close(p.ended)
	lines := bufio.NewScanner(says)
	for n := 0; lines.Scan(); n++ {
		line := lines.Text()
		if n == 0 {
			ready <- line
			continue
		}
		if m := asked.FindStringSubmatch(line); m != nil {
			p.told <- number(m[1])
		} else if m := atLast.FindStringSubmatch(line); m != nil {
			p.final[m[2]] = number(m[1])
		}
	}
}

func number(digits string) uint64 {
	n, _ := strconv.ParseUint(digits, 10, 64) // they are digits
	return n
}

func (p *pcap) taken(ctx context.Context) (uint64, error) {
	if !p.running {
		return p.final["captured"], nil
	}
	if err := p.cmd.Process.Signal(unix.SIGUSR1); err != nil {
		return 0, fmt.Errorf("asking tcpdump what it has captured: %w", err)
	}
	select {
	case n := <-p.told:
		return n, nil
	case <-p.ended:
		return 0, errors.New("tcpdump ended by itself")
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(answers):
		return 0, errors.New("tcpdump does not say what it has captured")
	}
}

func (p *pcap) threads() []int { return []int{p.cmd.Process.Pid} }

func (p *pcap) halt() error {
	if !p.running {
		return nil
	}
	p.running = false
	err := p.cmd.Process.Signal(unix.SIGINT)
	select {
	case <-p.ended:
	case <-time.After(answers):
		err = errors.Join(err, errors.New("tcpdump does not end"), p.cmd.Process.Kill())
		<-p.ended
	}
	return errors.Join(err, p.cmd.Wait())
}

func (p *pcap) lost() (uint64, error) {
	n, ok := p.final["dropped by kernel"]
	if !ok {
		return 0, errors.New("tcpdump does not say what it has lost")
	}
	return n, nil
}

func (p *pcap) close() error {
	err := p.halt()
	if p.stack != nil {
		err = errors.Join(err, p.stack.remove())
	}
	return err
}
