package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const systemdUnits = "../../packaging/systemd/"

// The unit keeps the policy for the name of the device, and lives on when the device goes.
func TestUnitIsNotBoundToADeviceThatComesBack(t *testing.T) {
	text, err := os.ReadFile(systemdUnits + "levee@.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"Type=notify",
		"Before=network-pre.target sockets.target basic.target",
		"Nice=-10",
	} {
		if !regexp.MustCompile("(?m)^" + regexp.QuoteMeta(line) + "$").Match(text) {
			t.Errorf("the unit does not say %s", line)
		}
	}
	if bound := regexp.MustCompile("(?m)^(BindsTo|Requires|Wants|PartOf|StopPropagatedFrom|" +
		"WantedBy)=.*device").Find(text); bound != nil {
		t.Errorf("the unit ends with the device: %s", bound)
	}
	if strings.Contains(string(text), "RemainAfterExit") {
		t.Error("the unit stays without its process")
	}
}

// TestUnitFindsTheInterfaceOfItsName runs the commands of the unit as systemd does, which reads a
// dash as a slash where the name is not escaped. `levee@br-lan` read /etc/levee/br/lan.levee.
func TestUnitFindsTheInterfaceOfItsName(t *testing.T) {
	text, err := os.ReadFile(systemdUnits + "levee@.service")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "levee")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"$*\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	whole := strings.ReplaceAll(string(text), "\\\n", "")
	jobs := "#!/bin/sh\necho '  7 levee@away0.service restart running'\n" +
		"echo '  8 levee@lo.service restart running'\necho '  9 levee@gone0.service stop running'\n"
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(jobs), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ setting, instance, want string }{
		{"ExecStart", "eth0", "up --keep --or-last /etc/levee/eth0.levee --dev eth0"},
		{"ExecStart", "br/lan", "up --keep --or-last /etc/levee/br-lan.levee --dev br-lan"},
		{"ExecStart", "br-lan", "up --keep --or-last /etc/levee/br-lan.levee --dev br-lan"},
		{"ExecStart", "a b", "up --keep --or-last /etc/levee/a b.levee --dev a b"},
		{"ExecReload", "wlan/guest/5", "up /etc/levee/wlan-guest-5.levee --dev wlan-guest-5"},
		{"ExecStop", "br/lan", "down --dev br-lan"},
		{"ExecStop", "gone0", "down --dev gone0"},
		{"ExecStop", "lo", "down --dev lo"},
		{"ExecStop", "away0", ""}, // renamed, say, and begun again: it was without a policy then
		{"ExecStartPre", "lo", ""},
	} {
		line := regexp.MustCompile("(?m)^" + c.setting + "=-?/bin/sh -c '(.*)' %I( %n)?$").
			FindStringSubmatch(whole)
		if line == nil {
			t.Fatalf("no %s", c.setting)
		}
		script := strings.NewReplacer("$$", "$", "/usr/sbin/levee", program, "/run/udev",
			filepath.Join(dir, "udev")).Replace(line[1])
		cmd := exec.Command("/bin/sh", "-c", script, c.instance, "levee@"+c.instance+".service")
		cmd.Env = append(os.Environ(), "MAINPID=1", "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); got != c.want || err != nil {
			t.Errorf("%s of levee@%s: %q, %v; want %q", c.setting, c.instance, got, err, c.want)
		}
	}
}

// TestRecipesFindTheInterfaceOfTheirName is the same of recipes: levee-drops@br-lan watched br/lan.
// A shell is not to read the name.
func TestRecipesFindTheInterfaceOfTheirName(t *testing.T) {
	units, err := filepath.Glob("../../packaging/recipes/*@.service")
	if err != nil || len(units) < 2 {
		t.Fatalf("%q, %v", units, err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"levee": `echo "$*"`, "logger": "cat"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"),
			0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		line := regexp.MustCompile(`(?m)^ExecStart=/bin/sh -c '([^']*)' %I$`).
			FindStringSubmatch(strings.ReplaceAll(string(text), "\\\n", ""))
		if line == nil || strings.ContainsAny(line[1], "%") {
			t.Errorf("%s: a shell reads the name", unit)
			continue
		}
		script := strings.NewReplacer("$$", "$", "/usr/sbin/levee", dir+"/levee").Replace(line[1])
		for instance, dev := range map[string]string{"eth0": "eth0", "br/lan": "br-lan",
			"br-lan": "br-lan", "a$(b)": "a$(b)"} {
			cmd := exec.Command("/bin/sh", "-c", script, instance)
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			want := "watch --dev " + dev + " --verdict drop --rate 10"
			if err != nil || !strings.HasPrefix(string(out), want) {
				t.Errorf("%s of %s: %q, %v; want %q", filepath.Base(unit), instance, out, err, want)
			}
		}
	}
}

// TestUnitsSpeakToTheJournalOfRoot: what a process says is for who may read the journal of its
// user. journald keeps that of root and of users of the system from others, in its first namespace.
func TestUnitsSpeakToTheJournalOfRoot(t *testing.T) {
	units, err := filepath.Glob(systemdUnits + "*.service")
	if err != nil || len(units) < 4 {
		t.Fatalf("%q, %v", units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`(?m)^(User=root|DynamicUser=yes)$`).Match(text) {
			t.Errorf("%s is of no user of the system", unit)
		}
		if said := regexp.MustCompile(`(?m)^(Standard(Output|Error)|LogNamespace)=.*`).
			Find(text); said != nil {
			t.Errorf("%s speaks to others: %s", unit, said)
		}
	}
}

// systemd understands the units, and finds little that they could do without.
func TestUnitsAreUnderstoodAndHardened(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs systemd-analyze: systemd judges its units itself")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "levee")
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for to, from := range map[string]string{
		"levee@lv0.service": "levee@.service", "levee-save.service": "", "levee-save.timer": "",
		"run-levee-bpf.mount": "", "levee-trap.service": "", "levee-agent.service": "",
		"levee-agent.service.d/outgoing.conf":        "agent-outgoing.conf",
		"levee-diverting.service":                    "levee-trap.service",
		"levee-diverting.service.d/trap-divert.conf": "trap-divert.conf",
	} {
		if from == "" {
			from = to
		}
		text, err := os.ReadFile(systemdUnits + from)
		if err != nil {
			t.Fatal(err)
		}
		there := strings.ReplaceAll(string(text), "/usr/sbin/levee", program)
		there = strings.ReplaceAll(there, "Documentation=man:levee(8)\n", "") // not installed here
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, to)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), []byte(there), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, unit := range []string{"levee@lv0.service", "levee-save.timer", "levee-trap.service",
		"levee-agent.service", "levee-diverting.service"} {
		cmd := exec.Command(analyze, "verify", "--man=no", filepath.Join(dir, unit))
		cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("verify %s: %v\n%s", unit, err, out)
		}
	}
	// Tenths. Of 21 one is that the agent chooses its processors (decision 0083).
	for unit, most := range map[string]string{"levee@lv0.service": "20", "levee-save.service": "20",
		"levee-trap.service": "20", "levee-agent.service": "21", "levee-diverting.service": "20"} {
		out, err := exec.Command(analyze, "security", "--no-pager", "--offline=true",
			"--threshold="+most, filepath.Join(dir, unit)).CombinedOutput()
		if err != nil {
			t.Errorf("the exposure of %s: %v\n%s", unit, err, out)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		t.Log(lines[len(lines)-1])
	}
}

// TestOtherInitSystemsTellPoliciesOfAddresses runs the hook of ifupdown and the script of OpenRC
// with a levee that notes how it is called. Before the network is configured `self` is empty.
func TestOtherInitSystemsTellPoliciesOfAddresses(t *testing.T) {
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	for name, text := range map[string]string{
		"levee":             "#!/bin/sh\necho \"$*\" >>" + calls + "\n",
		"start-stop-daemon": "#!/bin/sh\necho \"$*\" >>" + calls + "\n",
		"ebegin":            "#!/bin/sh\n", "eend": "#!/bin/sh\nexit $1\n",
		"eth0.levee": "default pass\n",
		// A link that gets its address while somebody waits.
		"sleep": "#!/bin/sh\necho sleep >>" + calls + "\n" +
			"echo fe800000000000000000000000000001 02 40 20 80 eth0 >" + dir + "/net/if_inet6\n",
		"net/if_inet6":                         "",
		"sys/net/ipv6/conf/eth0/disable_ipv6":  "0\n",
		"sys/net/ipv6/conf/eth0/addr_gen_mode": "0\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func(script, more string, env ...string) string {
		t.Helper()
		text, err := os.ReadFile("../../packaging/" + script)
		if err != nil {
			t.Fatal(err)
		}
		there := strings.NewReplacer("/usr/sbin/levee", dir+"/levee", "/etc/levee", dir,
			"/run/", dir+"/", "/proc/", dir+"/").Replace(string(text))
		cmd := exec.Command("sh", "-c", there+"\n"+more)
		cmd.Env = append(append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH")), env...)
		os.Remove(calls)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
		got, _ := os.ReadFile(calls)
		return strings.ReplaceAll(string(got), dir, "")
	}
	const hooked = "up --or-last /eth0.levee --dev eth0\n"
	if got := run("ifupdown/levee", "", "IFACE=eth0"); got != hooked {
		t.Errorf("ifupdown: %q", got)
	}
	for _, want := range []string{"sleep\n" + hooked, hooked} {
		if got := run("ifupdown/levee", "", "IFACE=eth0", "PHASE=post-up"); got != want {
			t.Errorf("ifupdown, with addresses: %q", got)
		}
	}
	if got := run("ifupdown/levee", "", "IFACE=eth1"); got != "" {
		t.Errorf("ifupdown, without a policy: %q", got)
	}
	const keeper = "--start --background --make-pidfile --pidfile /levee.eth0.pid " +
		"--exec /levee -- up --keep --or-last /eth0.levee --dev eth0\n"
	for action, want := range map[string]string{
		"start":  "up --or-last /eth0.levee --dev eth0\nshow --dev eth0\n" + keeper,
		"reload": "up /eth0.levee --dev eth0\n",
		"stop":   "--stop --quiet --pidfile /levee.eth0.pid --exec /levee\ndown --dev eth0\n",
	} {
		if got := run("openrc/levee", action, "RC_SVCNAME=levee.eth0"); got != want {
			t.Errorf("OpenRC, %s: %q", action, got)
		}
	}
	for dev, want := range map[string]string{"lo": "down --dev lo\n", "away0": ""} {
		got := run("openrc/levee", "stop", "RC_SVCNAME=levee."+dev, "RC_CMD=restart")
		if _, got, _ = strings.Cut(got, "\n"); got != want {
			t.Errorf("OpenRC, stop of %s to begin again: %q", dev, got)
		}
	}
	list, err := os.ReadFile("../../packaging/nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, hooks := range []string{"if-pre-up.d", "if-up.d"} {
		if !strings.Contains(string(list), "dst: /etc/network/"+hooks+"/levee\n") {
			t.Errorf("no hook in %s", hooks)
		}
	}
}
