package card

// Driver describes the support of a driver for XDP, from its source.
type Driver struct {
	// Attach says what happens to a running device when the first program comes or the last goes;
	// empty if nothing that a user would see. Bounces: the link goes down meanwhile.
	Attach  string
	Bounces bool
	Source  string
	// MTU is the largest one of a program that takes no fragments, where pages have 4096 bytes; 0:
	// not known.
	MTU int
	// Whole: the driver refuses any native program while the MTU is larger, also one that takes
	// fragments.
	Whole bool
	// SmallMTU is the largest one of the smaller buffers that a device has whose MTU is no larger.
	// The driver keeps their size while a native program is attached; 0: there is one size.
	SmallMTU int
	// Fragments63: the driver hands programs fragments from the kernel on that tells what drivers
	// do by XDP (Linux 6.3, the netlink family "netdev"), and takes such that want them before.
	Fragments63 bool
	// Forgets says when packets go past a native program that is attached; empty if never.
	Forgets string
	// Freezes are settings that the driver refuses to change while a native program is attached, as
	// ethtool calls their commands.
	Freezes string
}

// MTUSource is the source of values of MTU: the eBPF documentation computed them from the drivers'
// source.
const MTUSource = "https://docs.ebpf.io/linux/program-type/BPF_PROG_TYPE_XDP/ (max MTU)"

const (
	reopened = "the driver closes the device and opens it again: the link goes down for some " +
		"seconds"
	stopped = "the driver stops all queues and starts them again: packets of some milliseconds " +
		"are lost"
)

// Known returns what was read of a driver; one whose source was not read may do any of it.
func Known(driver string) (Driver, bool) {
	d, ok := drivers[driver]
	return d, ok
}

var drivers = map[string]Driver{
	"bnxt_en": {Attach: stopped, Source: "drivers/net/ethernet/broadcom/bnxt/bnxt_xdp.c, " +
		"bnxt_xdp_set"},
	"ena": {Attach: stopped, MTU: 3498,
		Source: "drivers/net/ethernet/amazon/ena/ena_xdp.c, ena_xdp_set"},
	"hv_netvsc": {MTU: 3506},
	"i40e": {Attach: "the driver resets the device: the link goes down for some seconds",
		Bounces: true, MTU: 3046,
		Source: "drivers/net/ethernet/intel/i40e/i40e_main.c, i40e_xdp_setup"},
	"ice": {Attach: reopened, Bounces: true, MTU: 3046,
		Source: "drivers/net/ethernet/intel/ice/ice_main.c, ice_xdp_setup_prog"},
	"igb": {Attach: reopened, Bounces: true, MTU: 3046, Whole: true, SmallMTU: 1510,
		Source: "drivers/net/ethernet/intel/igb/igb_main.c, igb_xdp_setup, igb_change_mtu"},
	"igc": {Attach: reopened, Bounces: true, MTU: 1500, Whole: true,
		Source: "drivers/net/ethernet/intel/igc/igc_xdp.c, igc_xdp_set_prog"},
	"ixgbe": {Attach: reopened, Bounces: true,
		Source: "drivers/net/ethernet/intel/ixgbe/ixgbe_main.c, ixgbe_xdp_setup"},
	"mlx4_en": {MTU: 3498},
	"mlx5_core": {Attach: "new queues are opened and take over: packets of some milliseconds may " +
		"be lost, the link stays up", MTU: 3498,
		Source: "drivers/net/ethernet/mellanox/mlx5/core/en_main.c, mlx5e_xdp_set"},
	"nicvf": {MTU: 1508},
	"tun":   {MTU: 1500},
	"veth":  {Source: "drivers/net/veth.c, veth_xdp_set", MTU: 3520},
	"virtio_net": {Attach: "receiving pauses for a moment, the link stays up", MTU: 3502,
		Freezes: "ethtool -L", Fragments63: true,
		Source: "drivers/net/virtio_net.c, virtnet_xdp_set, virtnet_set_channels"},
	"vmxnet3": {MTU: 3494,
		Forgets: "a native program gets no packet any more once the link was down, or the MTU or " +
			"a ring was changed",
		Source: "drivers/net/vmxnet3/vmxnet3_xdp.c; seen on 6.12 and 7.3"},
}
