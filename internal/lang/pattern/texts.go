package pattern

// compileTexts makes the automaton of Aho and Corasick (Efficient string matching, CACM 18(6),
// 1975): a tree of the texts, whose nodes go on where the longest end of what was read that begins
// another text does.
func compileTexts(items []Item, anyCase bool) (*Machine, error) {
	fold := func(c byte) byte {
		if other := otherCase(c); anyCase && other > c {
			return other
		}
		return c
	}
	var used [classes]bool
	for _, it := range items {
		for _, c := range it.Text {
			used[fold(c)] = true
		}
	}
	b := newBuilder(func(c byte) string {
		if used[fold(c)] {
			return string(rune(fold(c)))
		}
		return ""
	})
	root, err := b.row()
	if err != nil {
		return nil, err
	}
	// The tree: dead stands for no child.
	for _, it := range items {
		node := root
		for i, c := range it.Text {
			class := int(b.class[c])
			next := b.rows[int(node)*b.stride+class]
			if next == accept {
				node = accept
				break
			}
			if i == len(it.Text)-1 {
				next = accept // and what was behind it is not needed
			} else if next == dead {
				if next, err = b.row(); err != nil {
					return nil, err
				}
			}
			b.set(node, class, next)
			node = next
		}
		if len(it.Text) == 0 {
			return nil, ErrEmpty
		}
	}
	b.links(root)
	return b.finish(root)
}

// links fills in where nodes of the tree go on that have no child for a class, nearest to the root
// first. What a node falls back to is nearer.
func (b *builder) links(root uint32) {
	back := make([]uint32, b.states())
	back[root] = root
	queue := []uint32{root}
	for len(queue) > 0 {
		node := queue[0]
		queue = queue[1:]
		for class := range b.first {
			child := b.rows[int(node)*b.stride+class]
			beside := root
			if node != root {
				beside = b.rows[int(back[node])*b.stride+class]
			}
			switch {
			case beside == accept && node != root, child == accept:
				b.set(node, class, accept)
			case child == dead:
				b.set(node, class, beside)
			default:
				back[child] = beside
				queue = append(queue, child)
			}
		}
	}
}
