package trap

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/crypto/ssh"

	"levee/internal/host/atomicfile"
)

// maxKeyFile is above what any keys take.
const maxKeyFile = 1 << 20

// HostKeys reads the private keys in a file of PEM blocks, or makes an Ed25519 and an RSA key and
// writes the file, for its owner alone. Without a path they are made and not written.
func HostKeys(path string) ([]ssh.Signer, error) {
	if path == "" {
		text, err := makeKeys()
		if err != nil {
			return nil, err
		}
		return parseKeys(text)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		text, err := makeKeys()
		if err != nil {
			return nil, err
		}
		if err := atomicfile.Write(path, text, 0o600); err != nil {
			return nil, err
		}
		return parseKeys(text)
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxKeyFile:
		return nil, fmt.Errorf("%s is no file of host keys", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	keys, err := parseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}

func makeKeys() ([]byte, error) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	// For clients that know no other: many that try passwords are old.
	old, err := rsa.GenerateKey(rand.Reader, 3072)
	if err != nil {
		return nil, err
	}
	var text []byte
	for _, k := range []crypto.PrivateKey{ed, old} {
		block, err := ssh.MarshalPrivateKey(k, "")
		if err != nil {
			return nil, err
		}
		text = append(text, pem.EncodeToMemory(block)...)
	}
	return text, nil
}

func parseKeys(text []byte) ([]ssh.Signer, error) {
	var keys []ssh.Signer
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		key, err := ssh.ParsePrivateKey(pem.EncodeToMemory(block))
		if err != nil {
			return nil, err
		}
		keys, text = append(keys, key), rest
	}
	if len(keys) == 0 {
		return nil, errors.New("it holds no private key: name a file that is not there to get some")
	}
	return keys, nil
}
