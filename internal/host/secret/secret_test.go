package secret

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOnlySecretsThatOthersCannotReadAreRead(t *testing.T) {
	for _, test := range []struct {
		name, text string
		mode       os.FileMode
		want       string // of the error
	}{
		{"own", "Bearer abc\nmore\n", 0o600, ""},
		{"read only", "Bearer abc\r\n", 0o400, ""},
		{"of a group", "Bearer abc", 0o640, "chmod 600"},
		{"of all", "Bearer abc", 0o604, "chmod 600"},
		{"changed by a group", "Bearer abc", 0o620, "chmod 600"},
		{"empty", "\nabc", 0o600, "is no secret"},
		{"another header", "abc\rX: y\n", 0o600, "is no secret"},
		{"long", strings.Repeat("a", most+1), 0o600, "is no secret"},
	} {
		file := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, test.mode); err != nil {
			t.Fatal(err)
		}
		check(t, test.name, file, test.want)
	}
	dir := t.TempDir()
	check(t, "a directory", dir, "no regular file")
	check(t, "none", dir+"/none", "no such file")
	if err := unix.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	check(t, "a fifo", dir+"/fifo", "no regular file")
	if os.Geteuid() != 0 {
		return
	}
	file := dir + "/key"
	if err := os.WriteFile(file, []byte("Bearer abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(file, 12345, 0); err != nil {
		t.Fatal(err)
	}
	check(t, "of another user", file, "chown root")
}

func check(t *testing.T, name, file, want string) {
	t.Helper()
	got, err := Read(file)
	if want == "" && (err != nil || got != "Bearer abc") ||
		want != "" && (err == nil || !strings.Contains(err.Error(), want)) ||
		err != nil && strings.Contains(err.Error(), "abc") {
		t.Errorf("%s: %q, %v", name, got, err)
	}
}
