package receive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// dpdk is a testpmd that receives from an AF_XDP socket of its own, and throws away. It polls: its
// thread takes all of its core.
type dpdk struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	told    chan [2]uint64 // packets received and missed, as it answers
	ended   chan struct{}  // once it has said all
	last    [2]uint64
	why     string // what its libraries said last, once it has ended
	worker  int
	running bool
	dir     string // for what it leaves
}

// What is typed to testpmd, and what it answers.
const portStats = "show port stats 0\n"

var portCounts = regexp.MustCompile(`RX-packets: (\d+) +RX-missed: (\d+)`)

func openDPDK(ctx context.Context, s site) (_ reader, err error) {
	if _, err := exec.LookPath("dpdk-testpmd"); err != nil {
		return nil, fmt.Errorf("%w: dpdk-testpmd is not installed: apt-get install dpdk-dev "+
			"librte-net-af-xdp23 librte-mempool-ring23", errNone)
	}
	d := &dpdk{told: make(chan [2]uint64, 1), ended: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if d.dir, err = os.MkdirTemp("", "levee-dpdk"); err != nil {
		return nil, err
	}
	// Lines, so that an answer does not wait for the next one.
	d.cmd = s.host.Command(context.WithoutCancel(ctx), "stdbuf", "-oL", "dpdk-testpmd", "--no-huge",
		"-m", "256", "--no-pci", "--no-telemetry", "--no-shconf",
		fmt.Sprintf("--lcores=0@%d,1@%d", s.cpu, s.cpu),
		"--vdev=net_af_xdp0,iface="+s.device.Name,
		"--", "-i", "--forward-mode=rxonly", "--total-num-mbufs=32768")
	d.cmd.Env = append(os.Environ(), "RUNTIME_DIRECTORY="+d.dir)
	says, err := d.cmd.StdoutPipe()
	if err == nil {
		d.cmd.Stderr = d.cmd.Stdout
		d.in, err = d.cmd.StdinPipe()
	}
	if err == nil {
		err = d.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("starting dpdk-testpmd: %w", err)
	}
	d.running = true
	go d.listen(says)
	if err = d.say("start\n"); err != nil {
		return nil, err
	}
	if _, err = d.taken(ctx); err != nil {
		return nil, err
	}
	d.worker, err = thread(d.cmd.Process.Pid, "worker")
	return d, err
}

// thread finds the thread of a process that has a word in its name.
func thread(process int, word string) (int, error) {
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", process))
	if err != nil {
		return 0, err
	}
	for _, path := range all {
		if name, err := os.ReadFile(path); err == nil && strings.Contains(string(name), word) {
			return strconv.Atoi(filepath.Base(filepath.Dir(path)))
		}
	}
	return 0, fmt.Errorf("process %d has no thread called %s", process, word)
}

func (d *dpdk) listen(says io.Reader) {
	defer close(d.ended)
	for lines := bufio.NewScanner(says); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, "EAL: ") {
			d.why = line
		}
		if m := portCounts.FindStringSubmatch(lines.Text()); m != nil {
			select {
			case d.told <- [2]uint64{number(m[1]), number(m[2])}:
			default: // what it says at its end nobody has asked for
			}
		}
	}
}

func (d *dpdk) say(words string) error {
	if _, err := io.WriteString(d.in, words); err != nil {
		return fmt.Errorf("telling dpdk-testpmd what to do: %w", err)
	}
	return nil
}

func (d *dpdk) taken(ctx context.Context) (uint64, error) {
	if !d.running {
		return d.last[0], nil
	}
	if err := d.say(portStats); err != nil {
		return 0, err
	}
	select {
	case d.last = <-d.told:
		return d.last[0], nil
	case <-d.ended:
		return 0, fmt.Errorf("dpdk-testpmd ended by itself: %s", d.why)
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(answers):
		return 0, errors.New("dpdk-testpmd does not say what it has received")
	}
}

func (d *dpdk) threads() []int { return []int{d.worker} }

func (d *dpdk) halt() error {
	if !d.running {
		return nil
	}
	_, err := d.taken(context.Background())
	d.running = false
	err = errors.Join(err, d.say("quit\n"), d.in.Close())
	select {
	case <-d.ended:
	case <-time.After(answers):
		err = errors.Join(err, errors.New("dpdk-testpmd does not end"), d.cmd.Process.Kill())
		<-d.ended
	}
	return errors.Join(err, d.cmd.Wait())
}

func (d *dpdk) lost() (uint64, error) { return d.last[1], nil }

func (d *dpdk) close() error {
	err := d.halt()
	if d.dir != "" {
		err = errors.Join(err, os.RemoveAll(d.dir))
	}
	return err
}
