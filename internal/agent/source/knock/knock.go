// Package knock is the row of sources that are knocks: datagrams that show who sends them. In goes
// an address to listen at and a key, out come records with the address of each who knocked. It
// answers nobody, and must never hand on who has not the key, or the same datagram twice.
package knock

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/agent/source/inlet"
	"levee/internal/host/secret"
	"levee/internal/knock"
)

const keyWord = "key"

// Row is the row.
var Row = inlet.Row{
	Name:   "knock",
	Others: []string{"spa", "fwknop", "port-knock"},
	At: inlet.Value{What: "an address to listen at, such as :7000",
		Form: `knock ":7000" key "/etc/levee/knock.key"`},
	Options: []inlet.Option{{Word: keyWord, Required: true,
		Value: inlet.Value{What: "the path of a file with the key",
			Form: `key "/etc/levee/knock.key"`, Path: true}}},
	Format: inlet.EVE,
	Fields: func(string) []string { return []string{"src_ip", "src_port"} },
	Check: func(p *inlet.Place, wrong func(of, hint, text string)) {
		if _, err := address(p.At); err != nil {
			wrong("", `write: knock ":7000", or with an address of this machine before the colon.`,
				"%q is no address with a port")
		}
	},
	Advise: func(p *inlet.Place, err error) string {
		switch {
		case errors.Is(err, unix.EADDRINUSE):
			return "`ss -lunp` shows who listens there; name another port"
		case errors.Is(err, unix.EACCES):
			return "name a port from 1024 on"
		}
		return "`levee knock key " + p.Options[keyWord] + "` makes a key"
	},
	Open: func(p *inlet.Place, o inlet.Opening) (inlet.Inlet, error) {
		return listen(p.At, p.Options[keyWord], o.Position, time.Now)
	},
}

// address reads what stands behind the word; without an address it is all of this machine.
func address(at string) (*net.UDPAddr, error) {
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return nil, fmt.Errorf("%q is no port", port)
	}
	out := &net.UDPAddr{Port: int(n)}
	if host != "" {
		ip, err := netip.ParseAddr(host)
		if err != nil {
			return nil, err
		}
		out.IP, out.Zone = ip.AsSlice(), ip.Zone()
	}
	return out, nil
}

// gate is a socket that receives knocks.
type gate struct {
	*inlet.Queue
	socket *net.UDPConn
	now    func() time.Time
	told   time.Time // when a note was made last
	done   sync.WaitGroup

	mu  sync.Mutex
	key *knock.Gate
}

// tellAgain is the least time between two reports on clients that have the key and are refused.
const tellAgain = 10 * time.Second

func listen(at, keyFile string, left []byte, now func() time.Time) (inlet.Inlet, error) {
	to, err := address(at)
	if err != nil {
		return nil, err
	}
	text, err := secret.Read(keyFile)
	if err != nil {
		return nil, err
	}
	key, err := knock.ParseKey(text)
	if err != nil {
		return nil, fmt.Errorf("read the key %s: %w", keyFile, err)
	}
	socket, err := net.ListenUDP("udp", to)
	if err != nil {
		return nil, fmt.Errorf("listen for knocks: %w", err)
	}
	g := &gate{Queue: inlet.NewQueue(), socket: socket, now: now,
		key: knock.NewGate(key, now(), left)}
	g.done.Go(g.read)
	return g, nil
}

// read takes datagrams until the socket is closed.
func (g *gate) read() {
	b := make([]byte, knock.Bytes+1) // 1 byte more shows that a datagram is too long
	for {
		n, from, err := g.socket.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			g.Fail(fmt.Errorf("listen for knocks: %w", err))
			continue
		}
		g.take(b[:n], from)
	}
}

// take hands on who has knocked.
func (g *gate) take(b []byte, from netip.AddrPort) {
	now := g.now()
	who := from.Addr().Unmap().WithZone("")
	g.mu.Lock()
	err := g.key.Take(b, now)
	g.mu.Unlock()
	switch {
	case err == nil:
		g.Fail(nil)
		g.Put(fmt.Appendf(nil, `{"src_ip":%q,"src_port":%d}`, who, from.Port()), nil)
	case errors.Is(err, knock.ErrForged): // of whom nothing is known, and who may be anybody
	case now.Sub(g.told) > tellAgain:
		g.told = now
		g.Note(fmt.Sprintf("a knock from %v is not taken: %v", who, err))
	}
}

// Position returns the datagrams that the gate has taken, for the next one, which does not take
// them again.
func (g *gate) Position() []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.key.Left()
}

// Close ends the listening.
func (g *gate) Close() {
	g.End()
	_ = g.socket.Close()
	g.done.Wait()
}
