package prefix

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// contents lists a set in order.
func contents(d *Dynamic) []Entry {
	return slices.SortedFunc(d.All(), func(a, b Entry) int { return a.Prefix.Compare(b.Prefix) })
}

func TestRollUpCoversTheFullestPrefix(t *testing.T) {
	none := func(netip.Prefix) bool { return false }
	for _, c := range []struct {
		name   string
		in     []Entry
		spare  string
		out    []Entry
		freed  int
		covers string // an address that was in before and after
	}{
		{
			name: "the one with most hosts, the longest lease",
			in: []Entry{{pfx("192.0.2.1/32"), 50}, {pfx("192.0.2.2/32"), 70},
				{pfx("192.0.2.9/32"), 60},
				{pfx("198.51.100.1/32"), 0}, {pfx("198.51.100.2/32"), 0},
				{pfx("192.0.2.128/25"), 0}},
			out: []Entry{{pfx("192.0.2.0/24"), 70}, {pfx("192.0.2.128/25"), 0},
				{pfx("198.51.100.1/32"), 0}, {pfx("198.51.100.2/32"), 0}},
			freed:  2,
			covers: "192.0.2.9",
		},
		{
			name: "never ends if one of them does not",
			in: []Entry{{pfx("2001:db8::1/128"), 50}, {pfx("2001:db8::ffff:1/128"), 0},
				{pfx("192.0.2.1/32"), 0}},
			out:   []Entry{{pfx("192.0.2.1/32"), 0}, {pfx("2001:db8::/64"), 0}},
			freed: 1, covers: "2001:db8::1",
		},
		{
			name: "of two the lower",
			in: []Entry{{pfx("2001:db8::1/128"), 50}, {pfx("2001:db8::2/128"), 50},
				{pfx("10.0.1.1/32"), 50}, {pfx("10.0.1.2/32"), 50}, {pfx("10.0.0.1/32"), 50},
				{pfx("10.0.0.2/32"), 60}},
			out: []Entry{{pfx("10.0.0.0/24"), 60}, {pfx("10.0.1.1/32"), 50},
				{pfx("10.0.1.2/32"), 50}, {pfx("2001:db8::1/128"), 50},
				{pfx("2001:db8::2/128"), 50}},
			freed: 1, covers: "10.0.0.1",
		},
		{
			name: "not what is spared",
			in: []Entry{{pfx("10.0.0.1/32"), 50}, {pfx("10.0.0.2/32"), 50},
				{pfx("10.0.0.3/32"), 50}, {pfx("10.0.1.1/32"), 50}, {pfx("10.0.1.2/32"), 50}},
			spare: "10.0.0.77/32",
			out: []Entry{{pfx("10.0.0.1/32"), 50}, {pfx("10.0.0.2/32"), 50},
				{pfx("10.0.0.3/32"), 50}, {pfx("10.0.1.0/24"), 50}},
			freed: 1, covers: "10.0.1.2",
		},
		{
			name: "a cover that is there keeps the longer lease",
			in: []Entry{{pfx("10.0.0.0/24"), 90}, {pfx("10.0.0.2/32"), 50},
				{pfx("10.0.0.3/32"), 60}},
			out:   []Entry{{pfx("10.0.0.0/24"), 90}},
			freed: 2, covers: "10.0.0.3",
		},
		{
			name: "single hosts and networks stay",
			in: []Entry{{pfx("10.0.0.1/32"), 0}, {pfx("10.0.1.1/32"), 0}, {pfx("10.0.2.0/31"), 0},
				{pfx("10.0.2.4/31"), 0}},
			out: []Entry{{pfx("10.0.0.1/32"), 0}, {pfx("10.0.1.1/32"), 0}, {pfx("10.0.2.0/31"), 0},
				{pfx("10.0.2.4/31"), 0}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDynamic(t, len(c.in), &clock{now: 10})
			for _, e := range c.in {
				if err := d.Add(e.Prefix, e.Expires); err != nil {
					t.Fatal(err)
				}
			}
			spare := none
			if c.spare != "" {
				spare = pfx(c.spare).Overlaps
			}
			if got := d.RollUp(spare); got != c.freed {
				t.Errorf("freed %d, want %d", got, c.freed)
			}
			if got := contents(d); !slices.Equal(got, c.out) {
				t.Errorf("got %v, want %v", got, c.out)
			}
			if c.covers != "" && !d.Lookup(netip.MustParseAddr(c.covers)) {
				t.Errorf("%s is no member any more", c.covers)
			}
			if !sound(d) {
				t.Error("bookkeeping is wrong")
			}
		})
	}
}

// A set of a million would be searched for each new entry if it made room for one only.
func TestRollUpFreesAShareOfALargeSet(t *testing.T) {
	const max = 6400
	d := newDynamic(t, max, &clock{now: 1})
	r := newRand(t)
	for _, p := range hosts(r, 20_000, 128) {
		if d.Len() == max {
			break
		}
		pair := netip.PrefixFrom(p.Addr().Next(), 128)
		for _, p := range []netip.Prefix{p, pair} {
			if err := d.Add(p, 0); err != nil && !errors.Is(err, ErrFull) {
				t.Fatal(err)
			}
		}
	}
	if got := d.RollUp(func(netip.Prefix) bool { return false }); got < max/rollUpShare ||
		got > max/rollUpShare+2 {
		t.Errorf("freed %d of %d", got, max)
	}
	if !sound(d) {
		t.Error("bookkeeping is wrong")
	}
}

// Entries whose lease has ended leave while others are added, without a search of the whole set.
func TestWritersSweepEndedLeases(t *testing.T) {
	c := &clock{now: 1}
	d := newDynamic(t, 2000, c)
	r := newRand(t)
	for _, p := range hosts(r, 1000, 32) {
		if err := d.Add(p, 100); err != nil {
			t.Fatal(err)
		}
	}
	c.now = 100
	fresh := hosts(r, 400, 128)
	for _, p := range fresh {
		if err := d.Add(p, 0); err != nil {
			t.Fatal(err)
		}
	}
	if d.Len() != len(fresh) {
		t.Errorf("%d entries after as many additions as go once through the set, want %d", d.Len(),
			len(fresh))
	}
}

func TestCopyIsASetOfItsOwn(t *testing.T) {
	c := &clock{now: 1}
	d := newDynamic(t, 100, c)
	if err := d.Add(pfx("10.0.0.0/8"), 7); err != nil {
		t.Fatal(err)
	}
	d.Refuse(3)
	mem := make([]byte, len(d.mem))
	if err := d.CopyTo(mem); err != nil {
		t.Fatal(err)
	}
	e, err := Open(mem, c.read)
	if err != nil {
		t.Fatal(err)
	}
	d.Delete(pfx("10.0.0.0/8"))
	if got := contents(e); len(got) != 1 || got[0] != (Entry{pfx("10.0.0.0/8"), 7}) ||
		e.Refused() != 3 {
		t.Errorf("the copy has %v, %d refused", got, e.Refused())
	}
	if err := d.CopyTo(mem[:8192]); !errors.Is(err, ErrLayout) {
		t.Errorf("copy to memory of another size: %v", err)
	}
}
