package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheSwitchOfTheJITComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bpf_jit_enable")
	value := func() string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	for _, was := range []string{"1", "2", "0"} {
		if err := os.WriteFile(path, []byte(was+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		wrong := errors.New("wrong")
		err := interpreted(path, func() error {
			if v := value(); v != "0" {
				t.Errorf("%s while programs are loaded", v)
			}
			return wrong
		})
		if !errors.Is(err, wrong) || value() != was {
			t.Errorf("%s before, %s behind, %v", was, value(), err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = interpreted(path, func() error { panic("in the middle") })
		}()
		if v := value(); v != was {
			t.Errorf("%s before, %s behind a panic", was, v)
		}
	}
	if err := interpreted(path+"none", func() error { return nil }); !errors.Is(err, ErrRefused) {
		t.Errorf("no such switch: %v", err)
	}
}

// TestProgramsAreInterpretedWhereTheKernelCan asks this kernel.
func TestProgramsAreInterpretedWhereTheKernelCan(t *testing.T) {
	if err := Privileged(); err != nil {
		t.Skip(err)
	}
	before, err := os.ReadFile(jitSwitch)
	if err != nil {
		t.Skip(err)
	}
	called := false
	err = Interpreted(func() error {
		called = true
		now, err := os.ReadFile(jitSwitch)
		if strings.TrimSpace(string(now)) != "0" {
			t.Errorf("the switch is %s", now)
		}
		return err
	})
	if after, _ := os.ReadFile(jitSwitch); string(after) != string(before) {
		t.Errorf("%s before, %s behind", before, after)
	}
	if called == (err != nil) || err != nil && !errors.Is(err, ErrRefused) {
		t.Errorf("called %v, %v", called, err)
	}
}
