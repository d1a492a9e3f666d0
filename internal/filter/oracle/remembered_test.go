package oracle

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// TestForgettingIsBeingMadeAnew has an evaluator learn something in each of its memories, and
// holds what is left when it forgets against one that is new.
func TestForgettingIsBeingMadeAnew(t *testing.T) {
	p := parse(t, `set bad = dynamic(max 10)
set hosts = dynamic(of endpoints, max 10)
set names = dynamic(of names, max 10)
set good = { 192.0.2.0/24 }
prove "index" udp port 9 reply payload at 0 02000000 echo 4 bytes at 4 in request at 4
count tcp stream contains "x"
fragments track
drop from bad
drop to hosts
drop udp dns name in names
cookie tcp
limit udp rate 1/s by source
greylist udp after 1s within 1m
pass established
pass proven flow
pass from good
default pass
out drop to bad
out limit udp rate 1kpps by source
out pass established
out default pass
`)
	e := New(p)
	at := time.Unix(1_700_000_000, 0)
	e.SetClock(func() time.Time { return at })
	other := netip.MustParsePrefix("203.0.113.77/32")
	entries := map[string]policy.Element{
		"bad":   {Prefix: other},
		"hosts": {Prefix: other, Service: policy.Service{Proto: 6, Lo: 1, Hi: 1}},
		"names": {Name: "example.com"},
	}
	for set, n := range entries {
		if err := e.AddEntry(set, n, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	e.Tell(field.Local, 1)
	frames := packets(t)
	frames["reply"] = build(t, packet.Spec{Proto: new(uint8(packet.ProtoUDP)),
		FromPort: new(uint16(9)), ToPort: new(uint16(4000)),
		Payload: []byte{2, 0, 0, 0, 1, 2, 3, 4}})
	for _, frame := range frames {
		e.Eval(frame)
		e.Leave(frame)
	}
	for what, n := range e.Remembered() {
		if n == 0 {
			t.Errorf("it has learnt no %s", what)
		}
	}
	e.Forget()
	fresh := New(p)
	for _, e := range []*Evaluator{e, e.leaving, fresh, fresh.leaving} {
		e.now = nil
	}
	if !reflect.DeepEqual(e, fresh) {
		t.Errorf("it still knows something:\n%+v\nmade anew:\n%+v", e, fresh)
	}
	e.flows[connectionKey{}] = nil
	if len(e.leaving.flows) != 1 {
		t.Error("both sides do not have the same connections")
	}
}
