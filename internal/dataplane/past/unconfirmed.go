package past

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"levee/internal/host/atomicfile"
)

// Trials are noted by the text of their policy, whatever its set files hold: a list that changes
// meanwhile confirms nothing. The file beside the policies has the SHA-256 of each text, a line
// each, the newest last.

func (s Store) unconfirmed() string { return s.Dir + ".unconfirmed" }

func sumOf(source []byte) string {
	sum := sha256.Sum256(source)
	return hex.EncodeToString(sum[:])
}

// Try notes that a policy is on trial, by its text. The newest of those that were in force needs no
// confirmation.
func (s Store) Try(source []byte) error {
	all, _, err := s.List()
	if err != nil || len(all) > 0 && bytes.Equal(all[0].Source, source) {
		return err
	}
	sums, err := s.sums()
	if err != nil {
		return err
	}
	sum := sumOf(source)
	sums = append(slices.DeleteFunc(sums, func(o string) bool { return o == sum }), sum)
	return s.writeSums(sums[max(0, len(sums)-most):])
}

// Unconfirmed reports whether a text was on trial, of the last ten, and has not been in force
// otherwise since.
func (s Store) Unconfirmed(source []byte) (bool, error) {
	sums, err := s.sums()
	return slices.Contains(sums, sumOf(source)), err
}

// forget ends that a text counts as unconfirmed.
func (s Store) forget(source []byte) error {
	sums, err := s.sums()
	i := slices.Index(sums, sumOf(source))
	if err != nil || i < 0 {
		return err
	}
	return s.writeSums(slices.Delete(sums, i, i+1))
}

func (s Store) sums() ([]string, error) {
	text, err := os.ReadFile(s.unconfirmed())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Fields(string(text)), err
}

// writeSums needs no room on the disk where no sum is left.
func (s Store) writeSums(sums []string) error {
	if len(sums) == 0 {
		return os.Remove(s.unconfirmed())
	}
	text := strings.Join(sums, "\n") + "\n"
	return atomicfile.Replace(s.unconfirmed(), []byte(text), s.step)
}
