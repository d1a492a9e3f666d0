// Package lost counts the packets that a machine drops before any policy sees them, and answers
// that it drops behind all of them: what the card, its rings, the backlogs of the CPUs and the
// queues to the wire say.
//
// In go the counters of the kernel and of drivers; out come those that tell of lost packets, by
// queue and CPU, and how much was lost between two looks. It must never change anything.
package lost

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
)

// Counter is a number of packets since the driver or the machine began.
type Counter struct {
	Name    string `json:"name"`            // as the kernel or the driver calls it, without the queue
	Queue   *int   `json:"queue,omitempty"` // nil: of the whole card
	Packets uint64 `json:"packets"`         // since the driver began
}

// Counts holds the packets that an interface has lost. Counters may count the same packet twice: a
// card has one by queue and one of all.
type Counts struct {
	// packets that the kernel was given
	Received uint64 `json:"received_packets"`
	// before the policy, at the card and its rings; counters that are 0 are left out
	Card []Counter `json:"card"`
	// what Card says that were lost at least: no two counters are added that may be of the same
	// packets
	AtLeast uint64 `json:"at_least_packets"`
	// behind the policy: what the queues to the wire dropped
	Sent uint64 `json:"sent_packets"`
}

// Read reads the counters of an interface of this network namespace.
func Read(dev string) (*Counts, error) {
	l, err := netlink.LinkByName(dev)
	if err != nil {
		return nil, fmt.Errorf("read what %s has lost: %w", dev, err)
	}
	named := map[string]uint64{}
	c := &Counts{}
	if s := l.Attrs().Statistics; s != nil {
		c.Received = s.RxPackets
		// Not rx_dropped, which has packets that no protocol wants, too.
		named["rx_missed_errors"] = s.RxMissedErrors
		named["rx_fifo_errors"] = s.RxFifoErrors
		named["rx_over_errors"] = s.RxOverErrors
	}
	if e, err := ethtool.NewEthtool(); err == nil {
		if of, err := e.Stats(dev); err == nil { // a driver may have none
			maps.Copy(named, of)
		}
		e.Close()
	}
	c.Card, c.AtLeast = card(named)
	if qs, err := netlink.QdiscList(l); err == nil {
		for _, q := range qs {
			a := q.Attrs()
			if s := a.Statistics; s != nil && s.Queue != nil && a.Parent == netlink.HANDLE_ROOT {
				c.Sent += uint64(s.Queue.Drops)
			}
		}
	}
	return c, nil
}

// card picks the counters of lost packets, and the largest number of packets that they show: sums
// over the queues of one name, and single ones.
func card(named map[string]uint64) (out []Counter, atLeast uint64) {
	out = []Counter{}
	sums := map[string]uint64{}
	for name, n := range named {
		if n == 0 || !tells(name) {
			continue
		}
		c := Counter{Name: name, Packets: n}
		if of, queue, ok := queueOf(name); ok {
			c.Name, c.Queue = of, &queue
		}
		sums[c.Name] += n
		atLeast = max(atLeast, sums[c.Name])
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Counter) int {
		if d := cmp.Compare(a.Name, b.Name); d != 0 {
			return d
		}
		return cmp.Compare(queue(a), queue(b))
	})
	return out, atLeast
}

func queue(c Counter) int {
	if c.Queue == nil {
		return -1
	}
	return *c.Queue
}

// Drivers name what they lose as they like; these words are of those in the kernel's
// drivers/net/ethernet, of virtio_net, veth, vmxnet3 and netvsc (6.18). The allowances are of
// Amazon's network (ena), and are lost before the machine.
var words = sync.OnceValue(func() (w struct{ lost, other, arrives *regexp.Regexp }) {
	w.lost = regexp.MustCompile(`miss|drop|discard|no_?buf|no buf|out_?of_?buf|out of buf|` +
		`overrun|over_err|fifo_err|no_dma|no_desc|no_memory|alloc_?(fail|err)|alloc fail|` +
		`allowance_exceeded`)
	// What a filter, a program or another direction does, and what is lost for what is in the
	// packet, is no overload.
	w.other = regexp.MustCompile(`xdp|tx|out_allowance|steer|filter|vlan|crc|csum|length|` +
		`unknown|ptp|hwtstamp|tls|cache|realloc`)
	w.arrives = regexp.MustCompile(`rx|in_allowance|pps_allowance|conntrack_allowance`)
	return w
})

// numbered matches a counter's name with a number in it.
var numbered = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(\[)?(.*?)(\d+)(\])?(.*)$`)
})

// tells says whether a driver's counter is of packets that it lost on the way in.
func tells(name string) bool {
	s, w := strings.ToLower(name), words()
	return w.arrives.MatchString(s) && w.lost.MatchString(s) && !w.other.MatchString(s)
}

// queueOf takes the number of the queue out of a counter's name: rx_queue_3_drops, rx3_drops,
// rx_drops[3], [3]: rx_discards. A number that is no queue's stays (rx_prio0_discards).
func queueOf(name string) (of string, queue int, ok bool) {
	m := numbered().FindStringSubmatch(name)
	if m == nil || strings.HasSuffix(strings.ToLower(m[2]), "prio") {
		return "", 0, false
	}
	queue, err := strconv.Atoi(m[3])
	if err != nil {
		return "", 0, false
	}
	of = strings.Trim(strings.ReplaceAll(m[2]+m[5], "__", "_"), "_[]: ")
	return of, queue, true
}

// Backlog holds the counts of one CPU's backlog since the machine began, of all interfaces.
type Backlog struct {
	CPU     int    `json:"cpu"`
	Dropped uint64 `json:"dropped_packets"` // that found it full
	// rounds that ended for want of time or budget with packets left: a CPU that cannot keep up
	Squeezed uint64 `json:"squeezed_rounds"`
}

// Backlogs reads /proc/net/softnet_stat of a root directory ("" is /): one line a CPU, of which
// the second, third and thirteenth columns are used (net/core/net-procfs.c, softnet_seq_show). nil
// where the machine does not tell.
func Backlogs(root string) (out []Backlog) {
	text, err := os.ReadFile(filepath.Join(root, "/proc/net/softnet_stat"))
	if err != nil {
		return nil
	}
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		b := Backlog{CPU: i, Dropped: hex(f[1]), Squeezed: hex(f[2])}
		if len(f) > 12 { // its number, as CPUs that are off have no line
			b.CPU = int(hex(f[12]))
		}
		out = append(out, b)
	}
	return out
}

func hex(s string) uint64 {
	n, _ := strconv.ParseUint(s, 16, 64)
	return n
}

// Words says what was lost in a line, "" if nothing was.
func (c *Counts) Words() string {
	if c.AtLeast == 0 {
		return ""
	}
	var of []string
	for _, n := range c.Card {
		name := n.Name
		if n.Queue != nil {
			name += fmt.Sprintf(" of queue %d", *n.Queue)
		}
		of = append(of, fmt.Sprintf("%s %d", name, n.Packets))
	}
	const most = 4
	if more := len(of) - most; more > 0 {
		of = append(of[:most], fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("at least %d before the policy, since the driver began: %s", c.AtLeast,
		strings.Join(of, ", "))
}
