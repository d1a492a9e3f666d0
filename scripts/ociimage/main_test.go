package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

func TestTheImageIsThatOfTheContainerfile(t *testing.T) {
	text, err := os.ReadFile("../../packaging/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	r, err := parse(string(text))
	if err != nil || r.to != "/levee" || strings.Join(r.entrypoint, " ") != "/levee" ||
		strings.Join(r.cmd, " ") != "status" {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, bad := range []string{"", "FROM debian\nCOPY a /a\nENTRYPOINT [\"/a\"]",
		"FROM scratch\nCOPY a b /c\nENTRYPOINT [\"/c\"]", string(text) + "RUN true\n",
		"FROM scratch\nCOPY a /a\nENTRYPOINT /a"} {
		if r, err := parse(bad); err == nil {
			t.Errorf("%q is understood as %+v", bad, r)
		}
	}
}

// TestTheLayoutIsWhole: each digest is that of a blob with that size, for each architecture.
func TestTheLayoutIsWhole(t *testing.T) {
	var first []byte
	for range 2 {
		im := &image{recipe: recipe{"/levee", []string{"/levee"}, []string{"status"}},
			version: "1.2.3", at: time.Unix(1_900_000_000, 0).UTC()}
		for _, arch := range []string{"amd64", "arm64"} {
			if err := im.add(arch, []byte("binary of "+arch)); err != nil {
				t.Fatal(err)
			}
		}
		b, err := im.layout()
		if err != nil {
			t.Fatal(err)
		}
		if first != nil && !bytes.Equal(b, first) {
			t.Error("the same binaries give other bytes")
		}
		first = b
	}
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(first)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		text, rerr := io.ReadAll(r)
		if err != nil || rerr != nil {
			t.Fatal(err, rerr)
		}
		files[h.Name] = text
	}
	read := func(d descriptor, v any) {
		t.Helper()
		text, ok := files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		sum := sha256.Sum256(text)
		if !ok || len(text) != d.Size || "sha256:"+hex.EncodeToString(sum[:]) != d.Digest {
			t.Fatalf("%+v is not there, or is another", d)
		}
		if v == nil {
			return
		}
		if err := json.Unmarshal(text, v); err != nil {
			t.Fatal(err)
		}
	}
	var top, index struct{ Manifests []descriptor }
	if err := json.Unmarshal(files["index.json"], &top); err != nil || len(top.Manifests) != 1 {
		t.Fatalf("%+v, %v", top, err)
	}
	read(top.Manifests[0], &index)
	if len(index.Manifests) != 2 {
		t.Fatalf("%+v", index)
	}
	for i, arch := range []string{"amd64", "arm64"} {
		var m struct {
			Config descriptor
			Layers []descriptor
		}
		read(index.Manifests[i], &m)
		var c struct {
			Architecture string
			Config       struct{ Entrypoint, Cmd []string }
		}
		read(m.Config, &c)
		if len(m.Layers) != 1 || c.Architecture != arch || len(c.Config.Entrypoint) != 1 ||
			index.Manifests[i].Platform.Architecture != arch {
			t.Errorf("%s: %+v, %+v", arch, m, c)
		}
		read(m.Layers[0], nil)
	}
}
