package exporter

import "testing"

func TestListenAddresses(t *testing.T) {
	for v, want := range map[string]string{
		"9469": "tcp 127.0.0.1:9469", ":9469": "tcp 127.0.0.1:9469",
		"[::1]:9469": "tcp [::1]:9469", "0.0.0.0:80": "tcp 0.0.0.0:80",
		"unix:/run/l": "unix /run/l",
	} {
		network, address, err := Address(v)
		if got := network + " " + address; err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", v, got, err, want)
		}
	}
	for _, v := range []string{"", ":", "0", "70000", "localhost:80", "1.2.3.4", "unix:", "::1"} {
		if _, _, err := Address(v); err == nil {
			t.Errorf("%q is taken", v)
		}
	}
}
