package state

import (
	"strings"
	"testing"

	"levee/internal/filter/flow"
	"levee/internal/filter/greylist"
	"levee/internal/lang/policy"
)

const gigabyte = 1 << 30

func TestMostOfTheLanguageIsMostOfTheMemory(t *testing.T) {
	if flow.MaxRoom != policy.MostConnections {
		t.Errorf("a policy may ask for %d connections, and a memory has room for %d",
			policy.MostConnections, flow.MaxRoom)
	}
}

func TestConnectionsTakeMoreThanTheirShare(t *testing.T) {
	alone := func() *Use { return &Use{Tracks: true} }
	for _, c := range []struct {
		name   string
		use    func() *Use
		asked  int
		memory uint64
		want   flow.Room
	}{
		{"a machine that nobody knows", alone, 0, 0, flow.MaxRoom},
		{"a large machine", alone, 0, 16 * gigabyte, flow.MaxRoom},
		{"8 GB", alone, 0, 8 * gigabyte, flow.MaxRoom / 2},
		{"1 GB", alone, 0, gigabyte, flow.MaxRoom / 16},
		{"1 GB, of which the kernel has some", alone, 0, 950 << 20, flow.MaxRoom / 16},
		{"3 GB, and all other memories", all, 0, 3 * gigabyte, flow.MaxRoom / 16},
		{"1 GB, and all other memories", all, 0, gigabyte, flow.MinRoom},
		{"256 MB", alone, 0, gigabyte / 4, flow.MaxRoom / 64},
		{"64 MB, and all other memories", all, 0, gigabyte / 16, flow.MinRoom},
		{"a policy that says so", alone, 4194304, gigabyte, flow.MaxRoom},
		{"a policy that wants few", alone, 1, 16 * gigabyte, flow.MinRoom},
		{"a policy that wants some", alone, 100_000, 16 * gigabyte, 131_072},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := c.use()
			if err := u.Fit(c.asked, c.memory); err != nil {
				t.Fatal(err)
			}
			if u.Room != c.want {
				t.Errorf("room for %d, not %d", u.Room, c.want)
			}
			if n := u.Bytes() - u.greylists(); c.asked == 0 && c.memory > 0 &&
				u.Room > flow.MinRoom && n > int(c.memory/128) {
				t.Errorf("all state takes %d bytes of %d", n, c.memory)
			}
		})
	}
}

func TestMoreConnectionsThanMemory(t *testing.T) {
	u := &Use{Tracks: true}
	err := u.Fit(4_000_000, 128<<20)
	want := "connections max 4000000 takes 64.56 MiB, more than a quarter of the memory of this " +
		"machine, 128 MiB: write at most connections max 1048576"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("the error is %v", err)
	}
	if err := u.Fit(1_048_576, 128<<20); err != nil {
		t.Error(err)
	}
}

// Only connections and greylists have less room on a smaller machine: what limits, proofs and
// fragments promise does not depend on the machine.
func TestASmallMachineTakesMemoryFromLimits(t *testing.T) {
	others := func(memory uint64) int {
		u := all()
		if err := u.Fit(0, memory); err != nil {
			t.Fatal(err)
		}
		return u.Bytes() - u.Room.Bytes() - u.greylists()
	}
	if large, small := others(16*gigabyte), others(gigabyte/16); large != small || small == 0 {
		t.Errorf("memories other than that of connections take %d bytes, and %d on a small machine",
			large, small)
	}
}

// Of 4 GB the kernel leaves less; greylists have their largest memory there.
func TestGreylistsHaveAShareOfTheirOwn(t *testing.T) {
	for memory, want := range map[uint64]greylist.Room{0: greylist.Usual,
		gigabyte / 32: greylist.MinRoom, gigabyte: greylist.MaxRoom / 4,
		3*gigabyte + 7*gigabyte/8: greylist.MaxRoom} {
		u := all()
		if err := u.Fit(0, memory); err != nil {
			t.Fatal(err)
		}
		if u.Strangers != want {
			t.Errorf("of %d bytes there is room for %d, not %d", memory, u.Strangers, want)
		}
	}
}
