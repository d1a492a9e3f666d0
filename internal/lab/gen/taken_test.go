package gen

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"levee/internal/lab"
	"levee/internal/lab/labtest"
	"levee/internal/packet"
)

// TestFramesThatACardDoesNotTakeAreNotSent: "sent 2000, 0 not sent", and none arrived, on devices
// whose driver takes no frames of XDP programs: macvlan never, a tap (as igb and virtio_net, which
// have a program or not) only while it is open, veth while its peer receives by NAPI.
func TestFramesThatACardDoesNotTakeAreNotSent(t *testing.T) {
	l := labtest.New(t)
	world, server := l.Host(lab.World), l.Host(lab.Server)
	for _, command := range []string{
		"link add mv0 link eth0 type macvlan mode bridge", "link set mv0 up",
		"tuntap add tap0 mode tap", "link set tap0 up",
		"link add v0 type veth peer name v1", "link set v0 up", "link set v1 up",
	} {
		if out, err := world.Command(t.Context(), "ip",
			strings.Fields(command)...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", command, err, out)
		}
	}
	mac := server.Devices[0].MAC.String()
	src := "ipv4 udp from 10.0.0.0/8 permuted to 198.18.0.1 port 9 len 60 ether to " + mac
	c := Config{Namespace: world.Namespace, OwnNetwork: true, Template: packets(t, src),
		Count: aRing, CPU: -1}
	for _, dev := range []string{"mv0", "tap0", "v0"} {
		c.Device, c.Path = dev, Live
		if r, err := Run(t.Context(), c); err == nil || r.Sent > 0 ||
			!strings.Contains(err.Error(), "takes no frames of XDP programs") {
			t.Errorf("%s by live: sent %d, %v", dev, r.Sent, err)
		}
		c.Path = Auto
		rx := receive(t, l, 23, packet.ProtoUDP, 26, 0)
		r, err := Run(t.Context(), c)
		if err != nil || r.Path != Packet || r.Sent != c.Count || r.Errors != 0 ||
			!strings.Contains(r.Why, "takes no frames of XDP programs") {
			t.Errorf("%s by auto: sent %d, errors %d by %s because %q, %v", dev, r.Sent, r.Errors,
				r.Path, r.Why, err)
		}
		if dev == "tap0" && r.Refused != r.Sent { // nobody reads
			t.Errorf("%s: sent %d, refused %d", dev, r.Sent, r.Refused)
		}
		if dev == "mv0" {
			if got := rx.received(t, r.Sent); got != r.Sent {
				t.Errorf("%s: sent %d, received %d", dev, r.Sent, got)
			}
		}
		rx.detach()
	}
	// Open, the tap takes as many as its queue holds.
	var fd int
	if err := world.Do(func() (err error) { fd, err = openTap("tap0"); return err }); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	c.Device, c.Path, c.Count = "tap0", Live, 2000
	r, err := Run(t.Context(), c)
	if err != nil || r.Sent != c.Count || r.Errors != 0 || r.Refused == 0 || r.Refused == r.Sent ||
		!strings.Contains(r.How, "counted as the driver took them") {
		t.Fatalf("%+v, %v", r, err)
	}
	got, b := uint64(0), make([]byte, 2048)
	for {
		n, err := unix.Read(fd, b)
		if err == unix.EAGAIN {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n == 74 && b[23] == packet.ProtoUDP {
			got++
		}
	}
	if got != r.Sent-r.Refused {
		t.Errorf("sent %d, refused %d, received %d", r.Sent, r.Refused, got)
	}
}

// openTap opens a queue of a tap.
func openTap(name string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fd, err
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	return fd, err
}
