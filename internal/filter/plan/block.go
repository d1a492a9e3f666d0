package plan

// ID is the number of a block: its chain's, and behind dots its place in each block around it. What
// several chains share has the number of the first.
type ID string

// Block is a node of a plan: *Chain, *Straight, *Rule, *Lookup, *RuleTree, *Bytecode, *Function,
// *Effect or *Verdict.
type Block interface {
	// About returns the part that all blocks have.
	About() *Node
	// Kind is the word for it.
	Kind() string
	// Blocks are those that it consists of, in the order in which a packet meets them.
	Blocks() []Block
}

// Node holds the members that every block has.
type Node struct {
	ID   ID
	What string // in a line: rules, a set
	Why  string // it is made so and not otherwise; empty where there is no choice
	Cost Cost
}

// About makes every type that begins with one a Block's head.
func (n *Node) About() *Node { return n }

// Cost is the cost of a block with all blocks in it. Instructions and bytes that several blocks
// share count for the first of them; time counts for each.
type Cost struct {
	// Time of a packet: of one like those before it (the CPU predicts all, the caches have all),
	// and of one in no order. Packets are spread evenly over the rules that decide; packets that do
	// not reach a block, or its end, count with the part that they meet.
	Least, Ns    float64
	Instructions int // at most
	Bytes        int // of tables; of bytecode at most
}
