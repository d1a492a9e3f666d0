package lab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"levee/internal/kernel"
)

func TestTheSwitchOfTheJITComesBack(t *testing.T) {
	t.Setenv("LEVEE_RUN", t.TempDir())
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
	err := interpreted(path+"none", func() error { return nil })
	if !errors.Is(err, kernel.ErrRefused) {
		t.Errorf("no such switch: %v", err)
	}
}

// TestProgramsAreInterpretedWhereTheKernelCan asks this kernel.
func TestProgramsAreInterpretedWhereTheKernelCan(t *testing.T) {
	needRoot(t)
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
	if called == (err != nil) || err != nil && !errors.Is(err, kernel.ErrRefused) {
		t.Errorf("called %v, %v", called, err)
	}
}

// TestTheSwitchOfAKilledProcessComesBack: the JIT of the whole machine stayed off.
func TestTheSwitchOfAKilledProcessComesBack(t *testing.T) {
	t.Setenv("LEVEE_RUN", t.TempDir())
	path := filepath.Join(t.TempDir(), "bpf_jit_enable")
	value := func() string {
		now, err := jit(path)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	if err := os.WriteFile(path, []byte("2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for again, back := range map[string]func() error{
		"a sweep": func() error { return Sweep(t.Context()) },
		"the next one": func() error {
			return interpreted(path, func() error { return nil })
		},
	} {
		killed := exec.Command(os.Args[0])
		killed.Env = append(os.Environ(), jitChild+"="+path)
		out, err := killed.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := killed.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := killed.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if line != "off\n" || value() != "0" {
			t.Errorf("%q, %v: the switch is %s", line, err, value())
		}
		if err := Sweep(t.Context()); err != nil || value() != "0" {
			t.Errorf("a sweep meanwhile: %v, %s", err, value())
		}
		_ = killed.Process.Kill()
		_ = killed.Wait() // says that it was killed
		if err := back(); err != nil || value() != "2" {
			t.Errorf("after %s: %v, %s", again, err, value())
		}
		if left, _ := filepath.Glob(filepath.Join(dir(), "*"+loanSuffix)); len(left) > 0 {
			t.Errorf("after %s there is %v", again, left)
		}
	}
}

// jitChild makes the test binary turn a switch off, and stay.
const jitChild = "LEVEE_JIT_CHILD"

func interpretAndWait(path string) error {
	return interpreted(path, func() error {
		fmt.Println("off")
		_, err := io.Copy(io.Discard, os.Stdin) // until the test ends, whatever ends it
		return err
	})
}

// TestASweepTakesNoSettingFromAnybody: who asked while one had the note was told that another
// process has changed the setting.
func TestASweepTakesNoSettingFromAnybody(t *testing.T) {
	t.Setenv("LEVEE_RUN", t.TempDir())
	done := make(chan struct{})
	var swept error
	go func() {
		defer close(done)
		for range 300 {
			swept = errors.Join(swept, Sweep(t.Context()))
		}
	}()
	for range 300 {
		l, err := lend("jit", func(*loan) error { return nil })
		if err != nil {
			t.Error(err)
			break
		}
		l.file.Close() // as if it was killed, so that there is something to settle
	}
	<-done
	if swept != nil {
		t.Error(swept)
	}
}

func TestALoanThatIsNoneLeavesNoNote(t *testing.T) {
	t.Setenv("LEVEE_RUN", t.TempDir())
	wrong := errors.New("wrong")
	if _, err := lend("jit", func(*loan) error { return wrong }); !errors.Is(err, wrong) {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir(), "*"+loanSuffix)); len(left) > 0 {
		t.Errorf("there is %v", left)
	}
}

// TestTheSessionOfAKilledProcessHasItsPriorityAgain, as the shell has from which it was started.
func TestTheSessionOfAKilledProcessHasItsPriorityAgain(t *testing.T) {
	needRoot(t)
	t.Setenv("LEVEE_RUN", t.TempDir())
	sleep := exec.Command("sleep", "300")
	sleep.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sleep.Process.Kill(); _ = sleep.Wait() })
	file := fmt.Sprintf("/proc/%d/autogroup", sleep.Process.Pid)
	name, before, ok, err := session(file)
	if err != nil || !ok {
		t.Skip("autogroup is not at hand")
	}
	l, err := lend("session", func(l *loan) error {
		l.Session, l.Was = name, before
		return os.WriteFile(file, []byte("-3"), 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	l.file.Close() // as the kernel does for who is killed
	if _, now, _, _ := session(file); now != "-3" {
		t.Fatalf("it is %s", now)
	}
	if err := Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if _, now, _, _ := session(file); now != before {
		t.Errorf("it is %s, and was %s", now, before)
	}
}

// TestTheLastWhoHasRaisedASessionLowersIt: the first to end took the priority of the other.
func TestTheLastWhoHasRaisedASessionLowersIt(t *testing.T) {
	needRoot(t)
	t.Setenv("LEVEE_RUN", t.TempDir())
	sleep := exec.Command("sleep", "300")
	sleep.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sleep.Process.Kill(); _ = sleep.Wait() })
	file := fmt.Sprintf("/proc/%d/autogroup", sleep.Process.Pid)
	_, before, ok, err := session(file)
	if err != nil || !ok {
		t.Skip("autogroup is not at hand")
	}
	want := func(priority, when string) {
		t.Helper()
		if _, now, _, _ := session(file); now != priority {
			t.Errorf("%s it is %s, not %s", when, now, priority)
		}
	}
	raised := func() *loan {
		t.Helper()
		l, err := raise(file, -3)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first, killed, second := raised(), raised(), raised()
	killed.file.Close() // as the kernel does for who is killed
	first.lower(file)
	want("-3", "behind the first")
	if err := Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	want("-3", "behind a sweep that settles the note of the one who was killed")
	third := raised()
	second.lower(file)
	want("-3", "behind the second")
	third.lower(file)
	want(before, "behind the last")
	if left, _ := filepath.Glob(filepath.Join(dir(), "*"+loanSuffix)); len(left) > 0 {
		t.Errorf("there is %v", left)
	}
}
