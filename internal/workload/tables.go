package workload

// lengths4 and lengths6 are how many prefixes of each length an Internet full view has: 901,899 IPv4
// and 160,147 IPv6 prefixes (gaissmai/iprbench, testdata, MIT). Huston's BGP reports
// (bgp.potaroo.net, AS131072, 2024) give the same shape.
var lengths4 = [33]int{
	8: 16, 9: 13, 10: 38, 11: 103, 12: 299, 13: 581, 14: 1203, 15: 2100, 16: 13490, 17: 8235, 18: 13798, 19: 24870,
	20: 42611, 21: 50750, 22: 108623, 23: 96510, 24: 537698, 25: 20, 26: 3, 27: 11, 28: 18, 29: 17, 30: 3, 31: 3, 32: 886,
}

var lengths6 = [129]int{
	20: 16, 21: 3, 22: 7, 23: 8, 24: 30, 25: 8, 26: 15, 27: 20, 28: 193, 29: 4371, 30: 650, 31: 284, 32: 22548,
	33: 2926, 34: 2603, 35: 1043, 36: 5996, 37: 880, 38: 1617, 39: 1377, 40: 13418, 41: 903, 42: 2301, 43: 1001,
	44: 14365, 45: 1553, 46: 3039, 47: 3153, 48: 75488, 49: 11, 50: 3, 52: 1, 55: 1, 56: 24, 58: 20, 60: 2, 64: 184,
	112: 2, 122: 1, 124: 4, 125: 9, 126: 19, 127: 42, 128: 6,
}

// moreSpecific is the share, in percent, of prefixes inside another one of the table: 57 in IPv6 by
// Huston's reports, which have little less for IPv4.
const moreSpecific = 56

// tops6 are the first 16 bits of what the registries have handed out (IANA, IPv6 global unicast address
// assignments), one each for as many as they have in use.
var tops6 = []uint16{
	0x2001, 0x2400, 0x2401, 0x2402, 0x2403, 0x2404, 0x2405, 0x2406, 0x2407, 0x2408, 0x2409, 0x240a, 0x240e,
	0x2600, 0x2601, 0x2602, 0x2603, 0x2604, 0x2605, 0x2606, 0x2607, 0x2620, 0x2800, 0x2801, 0x2803, 0x2804, 0x2806,
	0x2a00, 0x2a01, 0x2a02, 0x2a03, 0x2a04, 0x2a05, 0x2a06, 0x2a07, 0x2a09, 0x2a0a, 0x2a0b, 0x2a0c, 0x2a0d,
	0x2a0e, 0x2a0f, 0x2a10, 0x2a12, 0x2a13, 0x2a14, 0x2c0f,
}

// Port classes of ClassBench: any port, 1024-65535, 0-1023, an arbitrary range, one port.
const (
	anyPort = iota
	high
	low
	someRange
	exact
	numClasses
)

// shape is what a family of rule sets looks like. The model is that of Taylor and Turner, "ClassBench: A
// Packet Classification Benchmark" (INFOCOM 2005): pairs of prefix lengths, a matrix of port
// classes, protocols, and addresses that share leading bits. The numbers are those of the filter sets
// acl1, fw1 and ipc1 with 10,000 filters that are published with it, in parts of a thousand.
type shape struct {
	pairs  [][3]int // source length, destination length, weight
	ports  [numClasses][numClasses]int
	protos [][2]int // protocol (0: any), weight; of rules without ports
	tcp    int      // percent of rules with ports that are TCP, not UDP
	// New addresses in percent of the rules; the others repeat one that is there.
	newSrc, newDst int
	exact          []uint16
	ranges         [][2]uint16
}

var shapes = map[string]*shape{
	"acl": {
		pairs: [][3]int{
			{32, 32, 293}, {31, 32, 141}, {32, 31, 128}, {31, 31, 45}, {32, 30, 39}, {23, 32, 35}, {32, 22, 33}, {31, 22, 21},
			{30, 32, 21}, {31, 23, 20}, {24, 31, 17}, {32, 24, 17}, {32, 21, 12}, {30, 22, 11}, {24, 24, 25}, {28, 24, 20},
			{22, 32, 25}, {21, 30, 15}, {16, 32, 10}, {24, 16, 10}, {0, 32, 12}, {0, 24, 8}, {27, 31, 20}, {29, 29, 12}, {8, 32, 10},
		},
		ports:  [numClasses][numClasses]int{anyPort: {anyPort: 281, someRange: 115, exact: 604}},
		protos: [][2]int{{6, 560}, {0, 300}, {1, 110}, {17, 30}},
		tcp:    98, newSrc: 40, newDst: 8,
		exact:  []uint16{1521, 1526, 1525, 1711, 1433, 14753, 5555, 1221, 21, 1724, 135, 1704, 1717, 80, 443, 25, 23, 7},
		ranges: [][2]uint16{{1024, 5000}, {6789, 6790}, {5631, 5632}, {1550, 1570}, {137, 139}, {20, 21}, {2300, 2400}},
	},
	"fw": {
		pairs: [][3]int{
			{0, 31, 188}, {0, 32, 146}, {1, 32, 111}, {1, 31, 70}, {0, 30, 55}, {31, 0, 47}, {32, 0, 38}, {32, 1, 29}, {2, 32, 27},
			{30, 0, 22}, {31, 1, 20}, {32, 32, 19}, {31, 32, 10}, {32, 31, 9}, {0, 29, 25}, {0, 24, 20}, {24, 0, 20}, {16, 32, 20},
			{24, 24, 15}, {2, 31, 24}, {8, 30, 20}, {1, 30, 25}, {28, 0, 15}, {0, 28, 15}, {0, 0, 3},
		},
		ports: [numClasses][numClasses]int{
			anyPort: {anyPort: 182, exact: 583}, high: {high: 61, exact: 20, someRange: 1},
			someRange: {high: 1}, exact: {anyPort: 106, exact: 26, high: 21},
		},
		protos: [][2]int{{6, 300}, {47, 270}, {1, 200}, {17, 170}, {0, 60}},
		tcp:    63, newSrc: 30, newDst: 60,
		exact:  []uint16{22, 80, 25, 53, 123, 544, 2105, 21, 750, 161, 88, 23, 111, 113, 2049, 514},
		ranges: [][2]uint16{{33434, 33600}, {6000, 6063}, {20, 21}},
	},
	"ipc": {
		pairs: [][3]int{
			{32, 32, 70}, {31, 32, 38}, {23, 32, 33}, {24, 32, 27}, {23, 24, 25}, {32, 31, 25}, {25, 32, 20}, {24, 31, 19},
			{0, 31, 19}, {24, 24, 18}, {0, 32, 16}, {24, 23, 16}, {25, 31, 15}, {32, 24, 15}, {24, 0, 15}, {23, 25, 15},
			{16, 24, 25}, {24, 16, 25}, {22, 22, 30}, {28, 28, 30}, {30, 24, 30}, {16, 16, 20}, {20, 30, 30}, {26, 23, 30},
			{21, 32, 30}, {32, 21, 30}, {8, 24, 20}, {24, 8, 20}, {29, 31, 30}, {0, 16, 8}, {16, 0, 8}, {27, 27, 40}, {31, 31, 30},
			{18, 26, 30}, {32, 0, 8}, {32, 28, 40}, {28, 32, 40},
		},
		ports: [numClasses][numClasses]int{
			anyPort: {anyPort: 369, exact: 357, high: 60, someRange: 24}, high: {anyPort: 3},
			someRange: {anyPort: 18}, exact: {anyPort: 165, exact: 3},
		},
		protos: [][2]int{{0, 890}, {17, 60}, {1, 30}, {47, 10}, {6, 10}},
		tcp:    42, newSrc: 18, newDst: 32,
		exact:  []uint16{69, 514, 80, 9003, 53, 25, 1433, 137, 162, 123, 389, 443, 1645, 22},
		ranges: [][2]uint16{{109, 110}, {20, 21}, {137, 138}, {161, 162}, {6000, 6100}, {1718, 1719}},
	},
}

// Shapes are the names of the rule set families, in the order of the literature: access lists,
// firewalls, chains of a Linux packet filter (ipchains).
var Shapes = []string{"acl", "fw", "ipc"}
