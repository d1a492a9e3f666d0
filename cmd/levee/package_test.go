package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"levee/internal/lang/resolve"
)

const packaging = "../../packaging/"

// scripted runs a script of the packages with programs that note how they are called, in place of
// those of this machine, and gives the calls. Its paths below /run lie in a directory, and so does
// what else the script removes.
func scripted(t *testing.T, dir, script string, args ...string) (calls string) {
	t.Helper()
	calls, said := saying(t, dir, script, args...)
	if said != "" {
		t.Errorf("%s %v: %s", script, args, said)
	}
	return calls
}

// saying is scripted of a script that says something.
func saying(t *testing.T, dir, script string, args ...string) (calls, said string) {
	t.Helper()
	bin, noted := filepath.Join(dir, "bin"), filepath.Join(dir, "calls")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, does := range map[string]string{
		"systemctl": "", "systemd-sysusers": "", "systemd-tmpfiles": "", "levee": "",
		"mountpoint": "test -e " + dir + "/mounted",
	} {
		text := "#!/bin/sh\necho \"" + name + " $*\" >>" + noted + "\n" + does + "\n"
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(packaging + "scripts/" + script)
	if err != nil {
		t.Fatal(err)
	}
	there := regexp.MustCompile(`/(run|var|etc)/`).ReplaceAllString(string(text), dir+"/$1/")
	os.Remove(noted)
	cmd := exec.Command("sh", append([]string{"-c", there, script}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %v: %v\n%s", script, args, err, out)
	}
	got, _ := os.ReadFile(noted)
	return string(got), string(out)
}

func makeFiles(t *testing.T, dir string, files ...string) {
	t.Helper()
	for _, file := range files {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAReinstalledAgentRanOnWithTheOldBinary: what judges packets goes on, and the agent and the
// trap begin anew. Without systemd nothing is restarted.
func TestAReinstalledAgentRanOnWithTheOldBinary(t *testing.T) {
	dir := t.TempDir()
	if got := scripted(t, dir, "postinstall", "configure"); strings.Contains(got, "systemctl") {
		t.Errorf("without systemd: %q", got)
	}
	makeFiles(t, dir, "run/systemd/system/any")
	const want = "systemctl --system daemon-reload\n" +
		"systemctl try-restart levee-agent.service levee-trap.service\n"
	if got := scripted(t, dir, "postinstall", "configure"); !strings.HasSuffix(got, want) ||
		strings.Contains(got, "levee@") {
		t.Errorf("calls: %q", got)
	}
}

// TestRemovalLeftFilesInRun: locks and notes of levee go with it. They stay where it is upgraded,
// and where what is mounted there is in use.
func TestRemovalLeftFilesInRun(t *testing.T) {
	for _, c := range []struct {
		arg     string
		mounted bool
		stays   bool
	}{
		{"remove", false, false}, {"0", false, false}, {"remove", true, true},
		{"upgrade", false, true}, {"1", false, true},
	} {
		dir := t.TempDir()
		makeFiles(t, dir, "run/systemd/system/any", "run/levee/lock", "run/levee/state/lv0",
			"run/levee/bpf/any")
		if c.mounted {
			makeFiles(t, dir, "mounted")
		}
		calls := scripted(t, dir, "preremove", c.arg)
		_, err := os.Stat(filepath.Join(dir, "run/levee"))
		if stays := err == nil; stays != c.stays {
			t.Errorf("%s, mounted %t: /run/levee stays: %t", c.arg, c.mounted, stays)
		}
		const stop = "systemctl stop levee-agent.service levee@*.service levee-save.timer " +
			"levee-trap.service\n"
		if stops := strings.HasPrefix(calls, stop); stops != (c.arg == "remove" || c.arg == "0") {
			t.Errorf("%s: %q", c.arg, calls)
		}
	}
}

// TestARemovalSaidNothingOfUnitsThatStartNoMore: a unit with a policy of levee's does not start
// without levee, and nobody was told before its next start failed.
func TestARemovalSaidNothingOfUnitsThatStartNoMore(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, "etc/systemd/system/web.service.d/00-levee.conf",
		"etc/systemd/system/other.service.d/00-levee.conf")
	own := filepath.Join(dir, "etc/systemd/system/web.service.d/00-levee.conf")
	if err := os.WriteFile(own, []byte("[Service]\nExecCondition=+\"/usr/sbin/levee\" wrap attach "+
		"%n \"/etc/levee/web.levee\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, said := saying(t, dir, "preremove", "remove")
	if want := "levee: web.service does not start without levee from now on:\nrm '" + own +
		"'; systemctl daemon-reload\n"; said != want {
		t.Errorf("%q, want %q", said, want)
	}
	scripted(t, dir, "preremove", "upgrade")
}

// TestAnExampleOfThePackageLackedItsFile: what the list of files of the package puts beside the
// examples is all that they read. Editors that know files by their type are told that of policies.
func TestAnExampleOfThePackageLackedItsFile(t *testing.T) {
	list, err := os.ReadFile(packaging + "nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	line := regexp.MustCompile(`src: "?([^ ",]+)"?, dst: "?([^ ",]+)"?`)
	there := map[string]bool{}
	for _, m := range line.FindAllStringSubmatch(string(list), -1) {
		from, err := filepath.Glob("../../" + m[1])
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range from {
			to := m[2]
			if strings.HasSuffix(to, "/") {
				to += filepath.Base(file)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			makeFiles(t, dir, to)
			if err := os.WriteFile(filepath.Join(dir, to), text, 0o644); err != nil {
				t.Fatal(err)
			}
			there[to] = true
		}
	}
	examples, _ := filepath.Glob(dir + "/usr/share/doc/levee/examples/*.levee")
	if len(examples) < 6 {
		t.Errorf("examples: %q", examples)
	}
	for _, file := range examples {
		if p, diags, err := resolve.Load(file); p == nil || err != nil {
			t.Errorf("%s: %v, %v", filepath.Base(file), err, diags.Err())
		}
	}
	for _, editor := range []string{"vim/vimfiles", "nvim/site"} {
		for _, file := range []string{"syntax", "ftdetect"} {
			if to := "/usr/share/" + editor + "/" + file + "/levee.vim"; !there[to] {
				t.Errorf("no %s", to)
			}
		}
	}
}
