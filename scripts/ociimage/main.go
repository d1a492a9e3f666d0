// Command ociimage makes the image that packaging/Containerfile describes, without a container
// engine: an OCI image layout as one tar file, with a manifest for each architecture. The same
// binaries give the same bytes.
//
//	go run ./scripts/ociimage -version 0.1.0 -out levee.tar packaging/Containerfile amd64=FILE ...
//
// Of the Containerfile it takes FROM scratch, one COPY of the binary, ENTRYPOINT and CMD as lists,
// and refuses all else. See https://github.com/opencontainers/image-spec.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	version := flag.String("version", "", "of the image, its tag")
	out := flag.String("out", "", "the file to write")
	flag.Parse()
	if flag.NArg() < 2 || *version == "" || *out == "" {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*version, *out, flag.Arg(0), flag.Args()[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ociimage:", err)
		os.Exit(1)
	}
}

func run(version, out, containerfile string, binaries []string) error {
	text, err := os.ReadFile(containerfile)
	if err != nil {
		return err
	}
	r, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", containerfile, err)
	}
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return errors.New("SOURCE_DATE_EPOCH, the time of the image, is no number")
	}
	im := &image{recipe: r, version: version, at: time.Unix(epoch, 0).UTC()}
	for _, b := range binaries {
		arch, path, ok := strings.Cut(b, "=")
		if !ok {
			return fmt.Errorf("%q is no ARCHITECTURE=FILE", b)
		}
		binary, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := im.add(arch, binary); err != nil {
			return err
		}
	}
	b, err := im.layout()
	if err != nil {
		return err
	}
	return os.WriteFile(out, b, 0o644)
}

// recipe is a parsed Containerfile.
type recipe struct {
	to         string // path of the binary in the image
	entrypoint []string
	cmd        []string
}

func parse(text string) (r recipe, err error) {
	from := false
	for n, line := range strings.Split(text, "\n") {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "":
		case "FROM":
			from = rest == "scratch"
		case "COPY":
			f := strings.Fields(rest)
			if len(f) != 2 || r.to != "" || !strings.HasPrefix(f[1], "/") {
				return r, fmt.Errorf("line %d: one COPY of one file is understood", n+1)
			}
			r.to = f[1]
		case "ENTRYPOINT":
			err = json.Unmarshal([]byte(rest), &r.entrypoint)
		case "CMD":
			err = json.Unmarshal([]byte(rest), &r.cmd)
		default:
			if !strings.HasPrefix(word, "#") {
				err = fmt.Errorf("%s is not understood", word)
			}
		}
		if err != nil {
			return r, fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	if !from || r.to == "" || r.entrypoint == nil {
		return r, errors.New("it lacks FROM scratch, COPY or ENTRYPOINT")
	}
	return r, nil
}

// image is an image on its way.
type image struct {
	recipe

	version   string
	at        time.Time
	blobs     []blob
	manifests []descriptor
}

type blob struct {
	name string // its SHA-256, in hexadecimal
	text []byte
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

const (
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeIndex    = "application/vnd.oci.image.index.v1+json"
)

func (im *image) blob(mediaType string, text []byte) descriptor {
	sum := sha256.Sum256(text)
	name := hex.EncodeToString(sum[:])
	im.blobs = append(im.blobs, blob{name, text})
	return descriptor{MediaType: mediaType, Digest: "sha256:" + name, Size: len(text)}
}

func (im *image) json(mediaType string, v any) (descriptor, error) {
	text, err := json.Marshal(v)
	return im.blob(mediaType, text), err
}

// labels are annotations of the image specification.
func (im *image) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":    "levee",
		"org.opencontainers.image.version":  im.version,
		"org.opencontainers.image.created":  im.at.Format(time.RFC3339),
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
}

// add makes the image of an architecture.
func (im *image) add(arch string, binary []byte) error {
	var layer bytes.Buffer
	t := tar.NewWriter(&layer)
	err := errors.Join(im.file(t, strings.TrimPrefix(im.to, "/"), 0o755, binary), t.Close())
	if err != nil {
		return err
	}
	unpacked := sha256.Sum256(layer.Bytes())
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(layer.Bytes()); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	config, err := im.json(typeConfig, map[string]any{
		"created": im.at.Format(time.RFC3339), "architecture": arch, "os": "linux",
		"config": map[string]any{"Entrypoint": im.entrypoint, "Cmd": im.cmd, "Labels": im.labels()},
		"rootfs": map[string]any{"type": "layers",
			"diff_ids": []string{"sha256:" + hex.EncodeToString(unpacked[:])}},
	})
	if err != nil {
		return err
	}
	manifest, err := im.json(typeManifest, map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest, "config": config,
		"layers":      []descriptor{im.blob(typeLayer, packed.Bytes())},
		"annotations": im.labels(),
	})
	manifest.Platform = &platform{arch, "linux"}
	im.manifests = append(im.manifests, manifest)
	return err
}

func (im *image) file(t *tar.Writer, name string, mode int64, text []byte) error {
	err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode,
		Size: int64(len(text)), ModTime: im.at, Format: tar.FormatUSTAR})
	if err == nil {
		_, err = t.Write(text)
	}
	return err
}

// layout returns the tar file: of the layout's index, an index of the architectures, and the blobs.
func (im *image) layout() ([]byte, error) {
	all, err := im.json(typeIndex, map[string]any{"schemaVersion": 2, "mediaType": typeIndex,
		"manifests": im.manifests, "annotations": im.labels()})
	if err != nil {
		return nil, err
	}
	all.Annotations = map[string]string{"org.opencontainers.image.ref.name": im.version}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": typeIndex,
		"manifests": []descriptor{all}})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	t := tar.NewWriter(&out)
	err = errors.Join(im.file(t, "oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)),
		im.file(t, "index.json", 0o644, index))
	for _, b := range im.blobs {
		err = errors.Join(err, im.file(t, "blobs/sha256/"+b.name, 0o644, b.text))
	}
	return out.Bytes(), errors.Join(err, t.Close())
}
