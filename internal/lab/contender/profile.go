package contender

import (
	"fmt"
	"strconv"
	"strings"
)

// NFTProfile is nftables in front of a service over UDP whose clients may be forged: what conntrack
// has seen an answer to passes, and of all else so many packets a second, of one source or of many.
// rate is written as in a policy, "20kpps". Lengths and first bytes are not asked for: floods that
// are measured with it have those of clients. A meter by source is left out for the reason that
// docs/explanation/measured-floods.md gives under "A service under floods".
func NFTProfile(port uint16, rate string) Defence {
	n, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSuffix(rate, "pps"), "k"), 10, 32)
	if err != nil {
		panic("contender: " + err.Error()) // profiles that come with levee say thousands
	}
	rules := fmt.Sprintf(nftProfileRules, "%[1]s", port, n*1000)
	return &strict{settings: briefly, Defence: &nft{
		name: "nft conntrack", tables: []string{"netdev levee_profile", "inet levee_profile"},
		rules: rules,
		what:  "nftables: what is established passes, and a common rate of all else",
	}}
}

const nftProfileRules = `
table netdev levee_profile {
	chain ingress {
		type filter hook ingress device "%[1]s" priority 0; policy accept;
		ip frag-off & 0x3fff != 0 counter drop comment "fragment"
	}
}
table inet levee_profile {
	chain prerouting {
		type filter hook prerouting priority mangle; policy accept;
		udp dport %[2]d ct state established accept
		udp dport %[2]d limit rate over %[3]d/second burst %[3]d packets counter drop comment "strangers"
	}
}
`

// briefly keeps what nobody has answered, or has answered once, for a short time: with the usual
// 30 seconds the strangers of a flood fill the table, and then no client is let in.
var briefly = []setting{{"udp_timeout", "5", "30"}}
