package doctor

// driver is what the source of a driver says about XDP.
type driver struct {
	// attach says what happens to a running device when the first program comes or the last goes;
	// empty if nothing that a user would see. bounces: the link goes down meanwhile.
	attach  string
	bounces bool
	source  string
	// mtu is the largest MTU of a program that takes no fragments, where pages have 4096 bytes; 0:
	// not known.
	mtu int
}

// Values of mtu are those that the eBPF documentation computed from the drivers' source.
const mtuSource = "https://docs.ebpf.io/linux/program-type/BPF_PROG_TYPE_XDP/ (max MTU)"

const (
	reopened = "the driver closes the device and opens it again: the link goes down for some " +
		"seconds"
	stopped = "the driver stops all queues and starts them again: packets of some milliseconds " +
		"are lost"
)

// drivers are those whose source was read; the others may do any of this.
var drivers = map[string]driver{
	"bnxt_en": {stopped, false, "drivers/net/ethernet/broadcom/bnxt/bnxt_xdp.c, bnxt_xdp_set",
		0},
	"ena":       {stopped, false, "drivers/net/ethernet/amazon/ena/ena_xdp.c, ena_xdp_set", 3498},
	"hv_netvsc": {mtu: 3506},
	"i40e": {"the driver resets the device: the link goes down for some seconds", true,
		"drivers/net/ethernet/intel/i40e/i40e_main.c, i40e_xdp_setup", 3046},
	"ice": {reopened, true, "drivers/net/ethernet/intel/ice/ice_main.c, ice_xdp_setup_prog",
		3046},
	"igb": {reopened, true, "drivers/net/ethernet/intel/igb/igb_main.c, igb_xdp_setup", 0},
	"igc": {reopened, true, "drivers/net/ethernet/intel/igc/igc_xdp.c, igc_xdp_set_prog", 0},
	"ixgbe": {reopened, true, "drivers/net/ethernet/intel/ixgbe/ixgbe_main.c, ixgbe_xdp_setup",
		0},
	"mlx4_en": {mtu: 3498},
	"mlx5_core": {"new queues are opened and take over: packets of some milliseconds may be " +
		"lost, the link stays up", false,
		"drivers/net/ethernet/mellanox/mlx5/core/en_main.c, mlx5e_xdp_set", 3498},
	"nicvf": {mtu: 1508},
	"tun":   {mtu: 1500},
	"veth":  {source: "drivers/net/veth.c, veth_xdp_set", mtu: 3520},
	"virtio_net": {"receiving pauses for a moment, the link stays up", false,
		"drivers/net/virtio_net.c, virtnet_xdp_set", 3502},
	"vmxnet3": {mtu: 3494},
}
