package action

// Action is one of the actions of rules. The zero value drops.
type Action uint8

const (
	Drop Action = iota
	Pass
	Count  // counts, decides nothing
	Limit  // drops packets above a rate; others go on
	Log    // reports to watchers, and goes on
	Cookie // answers SYNs in the host's place; the rest goes on
	Divert // passes, and new connections reach the trap
	Track  // later fragments pass if the first has, or are dropped; all else goes on
	// Greylist drops a packet whose client has not come before; the rest goes on.
	Greylist
	Protect // passes, looked at before all others
	// Redirect hands packets to who reads a ring. The verdict that they have while nobody reads is
	// in the rule.
	Redirect

	// Foreign is the first of actions that the language does not have. Who gives rules effects of
	// them emits these effects too.
	Foreign Action = 128
)

var table = []Info{
	{
		Action: Pass, Word: "pass", Decides: true, Verdict: Pass,
		Others: "accept allow permit ok xdp_pass",
	},
	{
		Action: Drop, Word: "drop", Decides: true, Verdict: Drop,
		Others: "deny block reject discard refuse blackhole xdp_drop",
	},
	{
		Action: Count, Word: "count",
		Effect: true, May: GoesOn | MayGo | MayShare | MayBeBytecode | MayShadow | MayMeetMalformed,
		Others: "counter",
	},
	{
		Action: Limit, Word: "limit", Verdict: Drop,
		Effect: true, May: MayShare | MayShadow, Behind: "rate burst by memory",
		Others: "police meter ratelimit hashlimit",
	},
	{
		Action: Log, Word: "log",
		Effect: true, May: GoesOn | MayGo | MayShare | MayMeetMalformed, Behind: "sample",
		Others:    "nflog ulog trace",
		NoService: "those who watch look at interfaces: write count, which levee status shows",
	},
	{
		Action: Cookie, Word: "cookie", Verdict: Drop,
		Effect: true, May: MayShare, Behind: "above",
		Connection: &Connection{
			Who: "a cookie",
			Why: "a cookie finds SYNs by itself, and what proves a client: write addresses, " +
				"ports and tags only.",
			Example: "write: cookie tcp port 443.",
		},
		Others: "synproxy syncookie syncookies",
		NoService: "a cookie answers in front of the host, which has taken the SYN before a " +
			"service sees it",
		NoOut: &NoOut{
			Why:     "a cookie answers SYNs that arrive, and none that leave",
			Instead: "write it without out: it answers those who come.",
		},
	},
	{
		Action: Divert, Word: "divert", Decides: true, Verdict: Pass,
		Effect: true, May: MayShare, Begins: true, Next: "diverted to the trap",
		Reason: "has a new connection reach the trap",
		Connection: &Connection{
			Who:     "divert",
			Why:     "a connection is diverted as a whole: write addresses, ports and tags only.",
			Example: "write: divert tcp port 22 from SET.",
		},
		Others:    "tproxy tarpit",
		NoService: "a trap takes connections before a service has them",
		NoOut: &NoOut{
			Why:     "divert leads connections that arrive to the trap, and none that leave",
			Instead: "write it without out.",
		},
	},
	{
		Action: Redirect, Word: "redirect", Decides: true, Verdict: Redirect,
		Effect: true, May: MayShare | MayShadow | MayMeetMalformed,
		Others: "queue nfqueue af_xdp xsk xdp_redirect",
		NoService: "a ring takes packets where they arrive at the interface, before a service " +
			"has them",
		NoOut: &NoOut{
			Why:     "a ring takes packets that arrive, in XDP, and none that leave",
			Instead: "write it without out.",
		},
	},
	{
		Action: Track, Word: "fragments", Verdict: Pass,
		Effect: true, May: MayShare | MayShadow,
		Others:    "defrag scrub reassemble",
		NoService: "the kernel has put fragments together before a service sees them",
		NoOut: &NoOut{
			Why: "fragments are followed where they arrive; this machine sends whole " +
				"datagrams",
			Instead: "ask for the fragments that leave: out drop fragments.",
		},
	},
	{
		Action: Greylist, Word: "greylist", Verdict: Drop,
		Effect: true, May: MayShare | MayShadow, Behind: "after within above",
		Others: "greylisting graylist grey retransmission firstpacket",
		NoOut: &NoOut{
			Why:     "a greylist is about clients that arrive, and none that leave",
			Instead: "write it without out: it drops strangers that come once.",
		},
	},
	{
		Action: Protect, Word: "protect", Decides: true, Verdict: Pass, First: true,
	},
}
