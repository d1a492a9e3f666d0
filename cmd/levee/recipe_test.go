package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const recipes = "../../packaging/recipes/"

// TestTheMailOfADay runs the command of the recipe's unit as systemd does, with a levee and a
// sendmail of the test's. A part of levee that does not work is in the mail, and keeps no mail
// back; a mail that did not go fails the unit.
func TestTheMailOfADay(t *testing.T) {
	unit, err := os.ReadFile(recipes + "levee-report.service")
	if err != nil {
		t.Fatal(err)
	}
	packed, err := os.ReadFile("../../packaging/nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ExecStart=(\S+) \$\{REPORT_TO\}$`).FindSubmatch(unit)
	if line == nil || !strings.Contains(string(packed),
		"dst: "+string(line[1])+", file_info: { mode: 0755 }") {
		t.Fatalf("the unit starts %q, which no package installs as a program", line)
	}
	if !regexp.MustCompile(`(?m)^Environment=REPORT_TO=root$`).Match(unit) {
		t.Error("without a setting the mail goes to nobody")
	}
	dir := t.TempDir()
	program := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	program("levee", "echo \"said by levee $*\"\n[ ! -e "+dir+"/wrong ]\n")
	mail := filepath.Join(dir, "mail")
	sendmail := program("sendmail",
		"[ \"$*\" = -t ] && cat > "+mail+" && [ ! -e "+dir+"/refuses ]\n")
	socket := filepath.Join(dir, "agent.sock")
	run := func() (string, error) {
		t.Helper()
		cmd := exec.Command(recipes+filepath.Base(string(line[1])), "ops@example.net")
		cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin", "SENDMAIL=" + sendmail,
			"LEVEE_AGENT_SOCKET=" + socket}
		out, err := cmd.CombinedOutput()
		if len(out) > 0 {
			t.Errorf("it says %s", out)
		}
		text, rerr := os.ReadFile(mail)
		if rerr != nil {
			t.Fatal(rerr)
		}
		return string(text), err
	}
	has := func(text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("the mail lacks %q:\n%s", w, text)
			}
		}
	}

	text, err := run()
	if err != nil {
		t.Error(err)
	}
	head, body, _ := strings.Cut(text, "\n\n")
	has(head, "To: ops@example.net\n", "Subject: levee on ",
		"\nContent-Type: text/plain; charset=utf-8")
	has(body, "said by levee status\n")
	if strings.Contains(body, "agent") {
		t.Errorf("no agent runs: %s", body)
	}

	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.WriteFile(dir+"/wrong", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	text, err = run()
	if err != nil {
		t.Error(err)
	}
	has(text, "said by levee status\nlevee status says that something is wrong: see above.\n",
		"said by levee agent status\nA part of the agent does not work: see above.\n",
		"\nFloods\n\nsaid by levee agent incidents\n")

	if err := os.WriteFile(dir+"/refuses", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := run(); err == nil {
		t.Error("a mail that did not go is no failure")
	}
}

// TestRecipesAreUnderstood by systemd: each unit that guides have people copy.
func TestRecipesAreUnderstood(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs systemd-analyze: systemd judges its units itself")
	}
	files, err := filepath.Glob(recipes + "*.[st]*e*")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "levee")
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range append(files, systemdUnits+"run-levee-bpf.mount") {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		there := strings.NewReplacer("/usr/sbin/levee", program,
			"/usr/share/levee/recipes/levee-report", program,
			"Documentation=man:levee(8)\n", "").Replace(string(text))
		name := filepath.Join(dir, strings.Replace(filepath.Base(f), "@", "@lv0", 1))
		if err := os.WriteFile(name, []byte(there), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range files {
		name := strings.Replace(filepath.Base(f), "@", "@lv0", 1)
		cmd := exec.Command(analyze, "verify", "--man=no", filepath.Join(dir, name))
		cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("verify %s: %v\n%s", name, err, out)
		}
	}
}
