package main

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"levee/internal/lang/dnsname"
	"levee/internal/packet/dns"

	"golang.org/x/sys/unix"
)

// probe is the command `probe [-n N] [-len BYTES] [-wait D] ADDRESS` of the stories: it sends N
// echo requests of BYTES of payload, one after the other, and succeeds if each is answered within
// D. It stands in for ping(8), which not every machine has. Without D it waits for longer than a
// busy machine takes: an answer within a second is nothing that levee promises. What is not to be
// answered, and what is asked again, has a D.
func probe() {
	n := flag.Int("n", 1, "")
	size := flag.Int("len", 56, "")
	port := flag.Int("tcp", 0, "")
	say := flag.String("say", "", "")
	wait := flag.Duration("wait", time.Minute, "")
	query := flag.Int("query", 0, "")
	serve := flag.Bool("serve", false, "")
	flag.Parse()
	to, err := netip.ParseAddr(flag.Arg(0))
	if err == nil && *query != 0 {
		err = asks(netip.AddrPortFrom(to, uint16(*query)), *serve, *wait, *say)
	} else if err == nil && *port != 0 {
		err = greeting(netip.AddrPortFrom(to, uint16(*port)), *wait, *say)
	} else if err == nil {
		for i := range *n {
			if err = echo(to, *size, uint16(i), *wait); err != nil {
				break
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

// greeting prints the first line that a server says over TCP, and says a line to it.
func greeting(to netip.AddrPort, wait time.Duration, say string) error {
	c, err := net.DialTimeout("tcp", to.String(), wait)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	if say != "" {
		if _, err := io.WriteString(c, say+"\r\n"); err != nil {
			return err
		}
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	fmt.Print(line)
	return err
}

// asks sends a DNS query for a name, and proves itself by what comes back. With serve it is the
// server: who has not said its token behind a B gets that behind an A.
func asks(at netip.AddrPort, serve bool, wait time.Duration, name string) error {
	buf := make([]byte, 1500)
	if serve {
		c, err := net.ListenPacket("udp", at.String())
		if err != nil {
			return err
		}
		defer c.Close()
		for err == nil {
			var n int
			var from net.Addr
			if n, from, err = c.ReadFrom(buf); n > 0 && buf[0] != 'B' {
				_, err = c.WriteTo([]byte("A1b3D"), from)
			}
		}
		return err
	}
	c, err := net.Dial("udp", at.String())
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	pattern, wrong := dnsname.Parse(name)
	if wrong != nil {
		return wrong
	}
	ask := dns.Query(dns.Message{Question: true, Name: pattern.Name, Type: 16})
	if _, err := c.Write(ask); err != nil {
		return err
	}
	n, err := c.Read(buf)
	if err != nil || n != len("A1b3D") {
		return fmt.Errorf("no token: %q, %w", buf[:n], err)
	}
	_, err = c.Write(append([]byte("B"), buf[1:n]...))
	return err
}

// echo sends one ICMP echo request (RFC 792) and waits for its reply.
func echo(to netip.Addr, size int, seq uint16, wait time.Duration) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	id := uint16(os.Getpid())
	msg := make([]byte, 8+size)
	msg[0] = 8
	binary.BigEndian.PutUint16(msg[4:], id)
	binary.BigEndian.PutUint16(msg[6:], seq)
	binary.BigEndian.PutUint16(msg[2:], checksum(msg))
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrInet4{Addr: to.As4()}); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for deadline := time.Now().Add(wait); ; {
		// What has come by then counts, however late a busy machine lets this process look.
		left := time.Until(deadline)
		tv := unix.NsecToTimeval(max(left, time.Millisecond).Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
			return err
		}
		got, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil && left <= 0 {
			return fmt.Errorf("no answer from %s within %s", to, wait)
		}
		if err != nil || got < 28 {
			continue
		}
		if b := buf[20:got]; b[0] == 0 && binary.BigEndian.Uint16(b[4:]) == id &&
			binary.BigEndian.Uint16(b[6:]) == seq {
			return nil
		}
	}
}

// checksum is that of RFC 1071 over an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
