package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// With -drivers, guests have cards of drivers that qemu emulates, and a policy on each is judged
// anew after what may happen to a card. Each card stands on a hub with a virtio card, which is its
// other end; no network of the host is needed.

// network is one card under test, or what is stacked on one. What prelude.sh asks of its hook is
// that each packet is judged.
type network struct {
	name   string
	device string // for qemu; "" is the one of another network
	of     string // the network of that device
	stack  string // what stack of prelude.sh makes of it
	// tap has host and guest agree on packets larger than a frame, which hubs refuse, and fills up
	// short frames, which old cards do not take. The bridge lies in a network namespace of qemu's
	// own.
	tap bool
	// hook is the one that `levee up` takes; tc is TCX or, before 6.6, clsact. tags is that of a
	// policy that asks for them, if it is another.
	hook, tags string
	more       string // further calls of the check
}

const native, tc = "xdp-native", "tc"

var networks = []network{
	{name: "virtio_net", device: "virtio-net-pci", hook: native, more: "raised\ngenerates xdp"},
	{name: "virtio_net without mergeable buffers, large MTU",
		device: "virtio-net-pci,mrg_rxbuf=off,host_mtu=9000", hook: tc},
	{name: "virtio_net without mergeable buffers, guest TSO",
		device: "virtio-net-pci,mrg_rxbuf=off", tap: true, hook: tc, more: "unasked"},
	{name: "virtio_net without ctrl_guest_offloads",
		device: "virtio-net-pci,ctrl_guest_offloads=off", tap: true, hook: tc, more: "locked"},
	{name: "vmxnet3", device: "vmxnet3", hook: tc, more: "forgotten\nmerging"},
	{name: "igb", device: "igb", hook: native, tags: tc, more: "bounces\ngenerates xdp"},
	{name: "igbvf", of: "igb", stack: "vf", hook: tc},
	{name: "e1000e", device: "e1000e", hook: tc, more: "generates"},
	{name: "8139cp", device: "rtl8139", hook: tc},
	{name: "tulip", device: "tulip", hook: tc},
	{name: "ne2k-pci", device: "ne2k_pci", tap: true, hook: tc},
	{name: "pcnet32", device: "pcnet", tap: true, hook: tc},
	{name: "e100", device: "i82557b", hook: tc},
	{name: "bond of igb", of: "igb", stack: "bond", hook: native, tags: tc, more: "told yes"},
	{name: "bond of virtio_net", of: "virtio_net", stack: "bond", hook: native, more: "told"},
	{name: "bond of e1000e", of: "e1000e", stack: "bond", hook: tc,
		more: "because 'Slave device does not support XDP'"},
	{name: "bridge of e1000e", of: "e1000e", stack: "bridge", hook: tc},
	{name: "macvlan of e1000e", of: "e1000e", stack: "macvlan", hook: tc},
}

// driverModules lists the modules that the guest loads, and those that the network stack loads by
// itself.
var driverModules = []string{"virtio_pci", "virtio_net", "vmxnet3", "igb", "igbvf", "e1000e",
	"8139cp", "tulip", "ne2k-pci", "pcnet32", "e100", "bonding", "bridge", "macvlan", "veth",
	"8021q", "sch_ingress", "cls_bpf", "nf_tables", "af_packet", "tcp_diag", "udp_diag"}

// id returns the number of the card of a network, from 1.
func (n *network) id() int {
	return 1 + slices.IndexFunc(networks, func(o network) bool {
		return o.name == cmp.Or(n.of, n.name)
	})
}

// driverChecks are one for each card.
func driverChecks() (all []check) {
	for _, n := range networks {
		all = append(all, check{name: n.name, clock: host, script: fmt.Sprintf(
			"cards %s\nnetwork %02x %s %s %s\n%s\nleft", strings.Join(driverModules, " "), n.id(),
			n.hook, cmp.Or(n.tags, n.hook), n.stack, n.more)})
	}
	return all
}

// cardArgs are qemu's options for the cards, and a script that makes their other ends.
func cardArgs() (args []string, script string) {
	for _, n := range networks {
		if n.of != "" {
			continue
		}
		id := n.id()
		end := func(side string) string {
			if n.tap {
				return fmt.Sprintf("tap,ifname=%s%d,script=no,downscript=no,vnet_hdr=on", side, id)
			}
			return fmt.Sprintf("hubport,hubid=%d", id)
		}
		args = append(args,
			"-netdev", fmt.Sprintf("%s,id=a%d", end("a"), id),
			"-device", fmt.Sprintf("pcie-root-port,id=rp%d,chassis=%[1]d,slot=%[1]d", id),
			"-device", fmt.Sprintf("%s,romfile=,bus=rp%d,netdev=a%[2]d,mac=52:54:00:0a:%02[2]x:01",
				n.device, id),
			"-netdev", fmt.Sprintf("%s,id=b%d", end("b"), id),
			"-device", fmt.Sprintf("virtio-net-pci,romfile=,netdev=b%d,mac=52:54:00:0a:%02[1]x:02",
				id))
		if n.tap {
			script += fmt.Sprintf("ip link add br%d type bridge mcast_snooping 0\n"+
				"ip link set br%[1]d up\n", id)
			for _, side := range []string{"a", "b"} {
				script += fmt.Sprintf("ip tuntap add mode tap vnet_hdr name %s%d\n"+
					"ip link set %[1]s%[2]d up master br%[2]d\n", side, id)
			}
		}
	}
	return args, script
}

// driverTree copies what the guest loads, and what that needs, to where the guest has modules.
func driverTree(base, to string) error {
	found, err := one(base + "/lib/modules/*")
	if err != nil {
		return err
	}
	version := filepath.Base(found)
	list := `mkdir -p "$3/lib/modules/$2"; cp "$1/lib/modules/$2"/modules.* "$3/lib/modules/$2"
cd "$1"; for m in $4; do modprobe -d "$1" -S "$2" --show-depends $m || true; done |
	sed -n "s|^insmod $1/||p" | cut -d" " -f1 | sort -u | cpio -p -d --quiet "$3"`
	_, err = output(exec.Command("sh", "-euc", list, "sh", base, version, to,
		strings.Join(driverModules, " ")))
	return err
}

// emulator returns the command for qemu with all cards: the host's if it is 8 or newer, which has
// igb, else trixie's, which is unpacked and not installed; it runs by inOwnNamespaces.
func (d debian) emulator() ([]string, error) {
	const command = "qemu-system-x86_64"
	if out, err := exec.Command(command, "-device", "help").Output(); err == nil &&
		strings.Contains(string(out), `name "igb"`) {
		return []string{command}, nil
	}
	root := filepath.Join(d.dir, "qemu")
	if _, err := os.Stat(root); err != nil {
		cache := root + "-cache"
		if err := os.MkdirAll(cache+"/archives/partial", 0o755); err != nil {
			return nil, err
		}
		if _, err := d.run("apt-get", "install", "-y", "--no-install-recommends",
			"--download-only", "-t", "trixie", "-o", "Dir::Cache="+cache,
			"qemu-system-x86"); err != nil {
			return nil, err
		}
		if err := d.extract(root, cache+"/archives/*.deb"); err != nil {
			return nil, err
		}
	}
	usr := filepath.Join(root, "usr")
	modules := usr + hostModules
	return []string{"sh", "-euc", `[ ! -d "$1" ] || mount --bind "$2" "$1"; shift 2; exec "$@"`,
		"sh", "/usr" + hostModules, modules, "env", "QEMU_MODULE_DIR=" + modules,
		usr + "/lib64/ld-linux-x86-64.so.2", "--library-path", usr + "/lib/x86_64-linux-gnu",
		usr + "/bin/" + command, "-L", usr + "/share/qemu", "-L", usr + "/share/seabios"}, nil
}

// hostModules is below /usr. A module that QEMU_MODULE_DIR lacks qemu looks for there, and it ends
// where it finds one of another qemu.
const hostModules = "/lib/x86_64-linux-gnu/qemu"

// inOwnNamespaces returns a command that runs after a script, with a network and mounts of its own.
func inOwnNamespaces(script string, command []string) []string {
	run := "ip link set lo up\n" + script + `exec "$@"`
	return append([]string{"unshare", "--map-root-user", "--net", "--mount", "sh", "-euc", run,
		"sh"}, command...)
}
