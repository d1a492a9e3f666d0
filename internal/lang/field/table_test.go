package field

import (
	"slices"
	"strings"
	"testing"

	"levee/internal/packet"
)

// all fields that there are.
func all() (fs []Field) {
	for f := None + 1; f < NumFields; f++ {
		fs = append(fs, f)
	}
	return fs
}

func TestEveryFieldHasARow(t *testing.T) {
	names := map[string]Field{}
	for _, f := range all() {
		info := f.Info()
		if info.Name == "" {
			t.Errorf("field %d has no row", f)
			continue
		}
		if g, twice := names[info.Name]; twice {
			t.Errorf("fields %d and %d are both called %q", g, f, info.Name)
		}
		names[info.Name] = f
		if p := info.Header.Presence(); !p.NotIP && !p.IPv4 && !p.IPv6 {
			t.Errorf("%s: no packet has its header", info.Name)
		}
		if info.Compare == Unknown {
			t.Errorf("%s: it is not said how rules compare it", info.Name)
		}
		if strings.HasSuffix(info.Needs, ".") != (info.Needs != "") {
			t.Errorf("%s: %q is a hint without its full stop", info.Name, info.Needs)
		}
	}
	if None.Laws() != (Laws{}) || NumFields.Laws() != (Laws{}) || NumFields.Info() != None.Info() {
		t.Error("of what is no field something may be concluded")
	}
}

// Devices without Ethernet refuse rules for what is Ethernet's. Only a length is there without it,
// of all that packets have which are not IP.
func TestFieldsOfFramesSayThatTheyAreEthernets(t *testing.T) {
	for _, f := range all() {
		if info := f.Info(); info.Ethernet != (info.Header.Presence().NotIP && f != Len) {
			t.Errorf("%s: of Ethernet %v", info.Name, info.Ethernet)
		}
	}
}

// A row that lacks something would have rules go which ask for the field.
func TestRowThatLacksSomethingSaysNothing(t *testing.T) {
	six := upTo(9)
	six.IPv4 = nil
	for what, row := range map[string]Info{
		"the header":        {Compare: ByRange, Values: upTo(9)},
		"the values":        {Compare: ByRange, Header: InIP},
		"those of IPv4":     {Compare: ByRange, Header: InIP, Values: six},
		"those of flags":    {Compare: ByMask, Header: InTCP},
		"a header of pairs": {Compare: ByPair, Port: DstPort},
		"one that there is": {Compare: ByRange, Header: NumHeaders, Values: upTo(9)},
	} {
		if got := row.sure(); got.Compare != Unknown || got.Compare.Laws() != (Laws{}) {
			t.Errorf("without %s: compared by %d", what, got.Compare)
		}
	}
	if got := (Info{Compare: ByRange, Header: InIPv6, Values: six}).sure(); got.Compare != ByRange {
		t.Errorf("a row that has all that it needs: compared by %d", got.Compare)
	}
}

func TestEveryFieldIsSomewhere(t *testing.T) {
	for _, f := range all() {
		info := f.Info()
		pair := info.Compare == ByPair
		read := info.Compare == ByBytes || info.Compare == ByPattern || info.Compare == ByInner ||
			info.Compare == ByName || info.Compare == ByMessage
		if decides := f == Fragment; (info.Key == "") != (pair || decides || read) {
			t.Errorf("%s: member %q of struct key; pairs have none, nor what the class says "+
				"alone, nor what is read of the packet itself", info.Name, info.Key)
		}
		if pair != (info.Port != None) || !pair && info.Address != None {
			t.Errorf("%s: consists of fields %d and %d", info.Name, info.Address, info.Port)
		}
		if !pair && !read && !info.Remembered && f != Tags && info.Packet == "" {
			t.Errorf("%s: no word of packets sets it", info.Name)
		}
		if (info.Absent != 0) != (info.Header.Presence().Tags > 0 || info.Kernel != NoSide) {
			t.Errorf("%s: what stands for a field that is absent in some packets of a class: %d",
				info.Name, info.Absent)
		}
	}
}

func TestValuesAreSortedAndCanBeWritten(t *testing.T) {
	for _, f := range all() {
		info := f.Info()
		p := info.Header.Presence()
		for _, v := range []struct {
			has    bool
			values []Range
		}{{p.NotIP, info.Values.Other}, {p.IPv4, info.Values.IPv4}, {p.IPv6, info.Values.IPv6}} {
			numbers := info.Compare == ByRange || info.Compare == ByMask ||
				info.Compare == ByMessage
			if v.has && numbers != (len(v.values) > 0) {
				t.Errorf("%s: %d ranges of values", info.Name, len(v.values))
			}
			if !slices.IsSortedFunc(v.values,
				func(a, b Range) int { return int(a.Lo) - int(b.Lo) }) {
				t.Errorf("%s: values are not sorted", info.Name)
			}
		}
		if highest := info.Values.Highest(); highest < info.Max {
			t.Errorf("%s: %d can be written, and no packet has more than %d", info.Name, info.Max,
				highest)
		}
		for _, n := range info.Names {
			if got, ok := f.Named(n.Word); !ok || got != n.Range || n.Hi > info.Max {
				t.Errorf("%s: %q is %v, %v", info.Name, n.Word, got, ok)
			}
		}
	}
}

// A header field of packets has as many bits as the values of the field need.
func TestWordsOfPacketsHaveTheBitsOfTheField(t *testing.T) {
	for _, f := range all() {
		info := f.Info()
		bits := packet.FieldBits(info.Packet)
		if bits == 0 || info.Compare == ByPrefix { // proto, len: what the packet is built of
			continue
		}
		if most := uint64(1)<<bits - 1; most != info.Values.Highest() || most != info.Max {
			t.Errorf("%s: %q goes to %d, values to %d, %d can be written", info.Name, info.Packet,
				most, info.Values.Highest(), info.Max)
		}
	}
}

func TestEveryFieldCanBeWritten(t *testing.T) {
	asked := map[Field]bool{}
	words := map[string]bool{}
	for i := range Phrases {
		ph := &Phrases[i]
		asked[ph.Field] = true
		for _, w := range append(ph.Words, ph.Word) {
			if words[w] && w != "" {
				t.Errorf("%q stands in two rows", w)
			}
			words[w] = true
		}
		for _, w := range ph.Words {
			if _, ok := ph.Field.Named(w); !ok {
				t.Errorf("%q is no name of a value of %s", w, ph.Field.Info().Name)
			}
		}
		if alone := ph.Form == FormAlone || ph.Form == FormWord; alone && ph.What != "" || !alone &&
			ph.Form != FormPacket && ph.What == "" {
			t.Errorf("%q: what stands behind it is %q", ph.Word, ph.What)
		}
	}
	for _, f := range all() {
		// pairs have the words of addresses
		if info := f.Info(); info.Compare != ByPair && !asked[f] {
			t.Errorf("no phrase asks for %s", info.Name)
		}
	}
}

// Of the fields that ask for the second number of a box no class of packets has two to ask for; the
// others have a side of their own.
func TestSidesOfBoxesDoNotMeet(t *testing.T) {
	for _, f := range all() {
		for _, g := range all() {
			a, b := f.Info(), g.Info()
			if f >= g || a.Box == NoBox || a.Box != b.Box {
				continue
			}
			if a.Box != BoxNumber1 {
				t.Errorf("%s and %s are one side of a box", a.Name, b.Name)
			}
		}
	}
}
