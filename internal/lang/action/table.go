package action

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
		Effect: true, May: GoesOn | MayGo | MayShare | MayBeBytecode,
		Others: "counter",
	},
	{
		Action: Protect, Word: "protect", Decides: true, Verdict: Pass, First: true,
	},
}
